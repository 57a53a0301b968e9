/* SPDX-License-Identifier: GPL-2.0 */
/* Looks at the page tables of programs that have pages of the file system mapped. An access through a map has no event, but the
 * processor sets a bit for it. The bits are cleared by user space. x86-64. */
#ifndef FUTAE_MAPPED_H
#define FUTAE_MAPPED_H

#define ENTRY_PRESENT 0x01ULL
#define ENTRY_ACCESSED 0x20ULL
#define ENTRY_HUGE 0x80ULL
#define ENTRY_FRAME 0x000ffffffffff000ULL
#define TABLE_SHIFT 9
#define LEVELS_MAX 5
/* With four levels of tables, the kernel maps all memory above this address; with five, below it. */
#define FOUR_LEVELS 0xffff800000000000ULL
/* Pages of one mapping that are looked at together. */
#define LOOKED_AT_MAX (1 << 20)

/* A page whose bit is set: in which process, and where. */
struct accessed {
	u64 process;
	u64 address;
};
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << PAGE_SHIFT);
} accessed SEC(".maps");

/* The entry that maps an address; 0 if it is not mapped. */
INLINE u64 entry_of(u64 table, u64 page_offset, u64 address)
{
	u64 entry;
	u32 level;
#pragma unroll
	for (level = LEVELS_MAX; level; level--) {
		if (level == LEVELS_MAX && page_offset >= FOUR_LEVELS)
			continue;
		entry = 0;
		table += (address >> (PAGE_SHIFT + TABLE_SHIFT * (level - 1)) & ((1 << TABLE_SHIFT) - 1)) * sizeof(entry);
		if (probe_read_kernel(&entry, sizeof(entry), (void *)table) || !(entry & ENTRY_PRESENT))
			return 0;
		if (level <= 3 && entry & ENTRY_HUGE)
			return entry;
		table = page_offset + (entry & ENTRY_FRAME);
	}
	return entry;
}

/* Pages of a mapping, one in every `apart`. */
struct look {
	struct walk walk;
	u64 process, table, page_offset, address;
	u64 apart, used;
};

static long look_at(u64 at, struct look *look)
{
	u64 index = at * look->apart, address = look->address + (index << PAGE_SHIFT), number, bit;
	struct accessed *one;
	u64 *bits;
	u32 group;
	if (!(entry_of(look->table, look->page_offset, address) & ENTRY_ACCESSED))
		return 0;
	number = number_at(&look->walk, index);
	if (number == NOWHERE)
		return 0;
	one = ringbuf_reserve(&accessed, sizeof(*one), 0);
	if (!one)
		return 1;
	one->process = look->process;
	one->address = address;
	ringbuf_submit(one, RING_NO_WAKEUP);
	group = number >> 6;
	bits = map_lookup(&looked_at, &group);
	if (!bits)
		return 0;
	bit = 1ULL << (number & 63);
	/* The first time it may be the fault itself that set it. */
	if (__sync_fetch_and_or(bits, bit) & bit) {
		read_page(number);
		look->used++;
	}
	return 0;
}

/* Runs for each mapping of each process, while its mappings cannot change. */
SEC("iter/task_vma")
int look_at_mapped(u64 *context)
{
	struct task_struct *task = (void *)context[1];
	struct vm_area_struct *area = (void *)context[2];
	struct control *control = settings();
	struct look look = {};
	struct file *file;
	u64 first, pages, skipped, apart;
	if (!task || !area || !control)
		return 0;
	file = area->vm_file;
	if (!file)
		return 0;
	first = area->vm_pgoff;
	apart = control->apart;
	if (!apart || !begin_walk(&look.walk, file->f_mapping->host, first))
		return 0;
	__sync_fetch_and_add(&control->areas, 1);
	pages = (area->vm_end - area->vm_start) >> PAGE_SHIFT;
	if (pages > look.walk.pages - first)
		pages = look.walk.pages - first;
	/* The first page of those whose turn it is. */
	skipped = (control->turn + apart - first % apart) % apart;
	if (skipped >= pages)
		return 0;
	look.walk.first.index += skipped;
	look.walk.number += skipped;
	look.address = area->vm_start + (skipped << PAGE_SHIFT);
	look.process = task->tgid;
	look.table = (u64)area->vm_mm->pgd;
	look.apart = apart;
	probe_read_kernel(&look.page_offset, sizeof(u64), (void *)page_offset_base_at);
	pages = (pages - skipped - 1) / apart + 1;
	repeat(pages < LOOKED_AT_MAX ? pages : LOOKED_AT_MAX, look_at, &look, 0);
	__sync_fetch_and_add(&control->mapped_used, look.used);
	return 0;
}

#endif
