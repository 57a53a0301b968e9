/* SPDX-License-Identifier: GPL-2.0 */
/* Looks for where the kernel keeps the bases of its memory, in a kernel that lists functions alone (without
 * CONFIG_KALLSYMS_ALL): page_offset_base, vmalloc_base and vmemmap_base lie side by side among what is read-only after
 * boot, and nothing else there looks like three of them. */
#include "kernel.h"

/* Set by the loader: where to begin. */
const volatile u64 begin = 0;

enum { WORDS = 1 << 16, BASES = 3 };
/* Each is a multiple of 1 GiB, in the part of the address space in which the kernel has large areas. */
#define UNIT (1ULL << 30)
#define LOWEST 0xff00000000000000ULL
#define HIGHEST 0xfffffe0000000000ULL

struct found {
	u64 count;
	u64 at;
	u64 values[BASES];
};
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct found);
} found SEC(".maps");

INLINE int is_base(u64 value)
{
	return value % UNIT == 0 && value >= LOWEST && value < HIGHEST;
}

static long look(u64 word, void *unused)
{
	u64 at = begin + word * sizeof(u64), values[BASES] = {};
	u32 first = 0;
	struct found *place;
	if (probe_read_kernel(values, sizeof(values), (void *)at))
		return 1;
	if (!is_base(values[0]) || !is_base(values[1]) || !is_base(values[2]))
		return 0;
	if (values[0] == values[1] || values[0] == values[2] || values[1] == values[2])
		return 0;
	place = map_lookup(&found, &first);
	if (!place)
		return 1;
	place->count++;
	place->at = at;
	place->values[0] = values[0];
	place->values[1] = values[1];
	place->values[2] = values[2];
	return 0;
}

SEC("raw_tp")
int find_bases(void *context)
{
	repeat(WORDS, look, NULL, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
