/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs read of the kernel, and what they call in it. Types name only the fields that are read;
 * where these lie is put in at load time from the running kernel's own description (CO-RE). */
#ifndef FUTAE_KERNEL_H
#define FUTAE_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NULL ((void *)0)
#define PAGE_SHIFT 12

/* Declarations of maps: integers travel as the length of an array. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, of) of *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_HASH = 5, MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_STACK = 23, MAP_RINGBUF = 27, MAP_TASK_STORAGE = 29 };
enum { NO_PREALLOC = 1, MAPPED = 1 << 10 };
enum { IF_ABSENT = 1 };
enum { STORAGE_CREATE = 1 };
enum { RING_NO_WAKEUP = 1, RING_FORCE_WAKEUP = 2 };
enum { RING_AVAILABLE = 0, RING_SIZE = 1 };

struct task_struct;
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const now_ns)(void) = (void *)5;
static long (*const map_push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const map_pop)(void *map, void *value) = (void *)88;
static long (*const probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static void *(*const ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*const ringbuf_discard)(void *data, u64 flags) = (void *)133;
static u64 (*const ringbuf_query)(void *ring, u64 what) = (void *)134;
static void *(*const task_storage_get)(void *map, struct task_struct *task, void *value, u64 flags) = (void *)156;
static struct task_struct *(*const current_task)(void) = (void *)158;
static long (*const task_registers)(struct task_struct *task) = (void *)175;
static long (*const repeat)(u32 times, void *body, void *context, u64 flags) = (void *)181;

/* Reads a field through a pointer that the verifier does not follow by itself. */
#define PEEK(pointer, field)                                                              \
	({                                                                                \
		typeof((pointer)->field) peeked = 0;                                      \
		probe_read_kernel(&peeked, sizeof(peeked),                                \
				  __builtin_preserve_access_index(&(pointer)->field));    \
		peeked;                                                                   \
	})
#define TASK_OF_KERNEL 0x200000u /* PF_KTHREAD */
#define HAS_FIELD(pointer, field) __builtin_preserve_field_info((pointer)->field, 2)
#define ENUM_VALUE(type, value) __builtin_preserve_enum_value(*(type *)value, 1)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};
struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_nlink;
	u32 i_rdev;
	s64 i_size;
	u32 i_generation;
};
struct address_space {
	struct inode *host;
};
struct file {
	struct address_space *f_mapping;
	s64 f_pos;
};
struct fdtable {
	u32 max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
};
struct readahead_control {
	struct address_space *mapping;
};
struct page {
	unsigned long flags;
};
struct folio {
	struct address_space *mapping;
	unsigned long index;
	unsigned long memcg_data;
};
struct folio___pages {
	u32 _folio_nr_pages; /* Linux 6.1 */
};
struct folio___order {
	unsigned long _flags_1; /* later: the order is in its lowest byte */
};
struct mm_struct {
	void *pgd;
};
struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_pgoff;
	struct file *vm_file;
};
enum fault_flag { FAULT_FLAG_WRITE = 1 };
struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
	enum fault_flag flags;
};
struct kernfs_node {
	u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct mem_cgroup {
	struct cgroup_subsys_state css;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
};
struct task_io_accounting {
	u64 syscr;
};
struct task_struct {
	u32 flags;
	int tgid;
	struct css_set *cgroups;
	struct files_struct *files;
	struct task_io_accounting ioac;
};
struct pt_regs {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};
#pragma clang attribute pop

enum pageflags { PG_uptodate = 3, PG_head = 16 };
enum cgroup_subsys_id { memory_cgrp_id = 4 };

/* The pages of a folio. */
INLINE u32 pages_of(struct folio *folio)
{
	unsigned long flags = 0;
	u32 pages;
	probe_read_kernel(&flags, sizeof(flags), folio); /* the flags are the first word */
	if (!(flags & (1UL << ENUM_VALUE(enum pageflags, PG_head))))
		return 1;
	if (HAS_FIELD((struct folio___pages *)folio, _folio_nr_pages))
		pages = PEEK((struct folio___pages *)folio, _folio_nr_pages);
	else
		pages = 1u << (PEEK((struct folio___order *)folio, _flags_1) & 0x1f);
	return pages ? pages : 1;
}

/* The running system call, -1 in the kernel's own threads and in page faults. */
INLINE s64 system_call(void)
{
	struct task_struct *task = current_task();
	if (task->flags & TASK_OF_KERNEL)
		return -1;
	return (s64)PEEK((struct pt_regs *)task_registers(task), orig_ax);
}

/* What a descriptor of the task stands for; NULL if there is none. */
INLINE struct file *file_of(struct task_struct *task, u64 number)
{
	struct files_struct *files = PEEK(task, files);
	struct fdtable *table = PEEK(files, fdt);
	struct file **all = PEEK(table, fd), *file = NULL;
	if (number < PEEK(table, max_fds))
		probe_read_kernel(&file, sizeof(file), all + number);
	return file;
}

/* Numbers of system calls on x86-64. */
enum {
	CALL_READ = 0,
	CALL_WRITE = 1,
	CALL_PREAD64 = 17,
	CALL_PWRITE64 = 18,
	CALL_READV = 19,
	CALL_WRITEV = 20,
	CALL_SENDFILE = 40,
	CALL_TRUNCATE = 76,
	CALL_FTRUNCATE = 77,
	CALL_SPLICE = 275,
	CALL_FALLOCATE = 285,
	CALL_PREADV = 295,
	CALL_PWRITEV = 296,
	CALL_COPY_FILE_RANGE = 326,
	CALL_PREADV2 = 327,
	CALL_PWRITEV2 = 328,
};

/* Whether the running system call writes the pages that are added to this mapping. sendfile and splice write to one file and
 * read from the other. */
INLINE int is_writing(s64 call, struct address_space *mapping)
{
	struct task_struct *task = current_task();
	struct pt_regs *registers = (void *)task_registers(task);
	struct file *file;
	if (call == CALL_WRITE || call == CALL_PWRITE64 || call == CALL_WRITEV || call == CALL_PWRITEV ||
	    call == CALL_PWRITEV2 || call == CALL_COPY_FILE_RANGE)
		return 1;
	if (call == CALL_SENDFILE)
		file = file_of(task, PEEK(registers, di));
	else if (call == CALL_SPLICE)
		file = file_of(task, PEEK(registers, dx));
	else
		return 0;
	return file && PEEK(file, f_mapping) == mapping;
}

/* Pages that a pipe holds: sendfile and splice read at most so many at a time. */
#define PIPE_PAGES 16
/* Folios of a batch, at most. */
#define BATCH_FOLIOS 31

/* Returns the first page of the read request that asks for pages up to `last`. The tracepoint fired for the batch that begins at
 * `index`. The kernel does not trace a batch whose last page is not up to date, but copies its other pages to the reader; those must
 * be counted here. `behind` is the page after this task's previous request for the file. Returns `index` if the start is not known.
 * An untraced batch is taken to have folios of one page: where folios are large, the pages before its last 31 are not counted. */
INLINE u64 first_page(struct task_struct *task, u64 index, u64 last, u64 behind)
{
	struct pt_regs *registers = (void *)task_registers(task);
	u64 call = PEEK(registers, orig_ax), length = PEEK(registers, dx), start = 0, number = PEEK(registers, di), offset = 0;
	int is_whole = call == CALL_READ || call == CALL_PREAD64, is_pipe = call == CALL_SENDFILE || call == CALL_SPLICE;
	struct file *file;

	/* The length is that of the request. It is most often one page. */
	if (is_whole && length <= 1UL << PAGE_SHIFT)
		return index;
	if (call == CALL_SENDFILE) {
		number = PEEK(registers, si);
		offset = length;
	} else if (call == CALL_SPLICE) {
		offset = PEEK(registers, si);
	}
	if (call == CALL_PREAD64 || call == CALL_PREADV || call == CALL_PREADV2) {
		start = PEEK(registers, r10);
	} else if (offset) {
		probe_read_user(&start, sizeof(start), (void *)offset);
	} else if (call == CALL_READ || call == CALL_READV || is_pipe) {
		file = file_of(task, number);
		if (!file)
			return index;
		start = PEEK(file, f_pos);
	} else {
		return index;
	}
	if (is_whole && (start + length - 1) >> PAGE_SHIFT != last)
		return index;
	start >>= PAGE_SHIFT;
	/* A long call makes one request for each filling of the pipe. */
	if (is_pipe && behind > start && behind <= index && last - behind < PIPE_PAGES)
		return behind;
	return start <= index && (is_whole || index - start <= BATCH_FOLIOS) ? start : index;
}

#endif
