/* SPDX-License-Identifier: GPL-2.0 */
/* Marks what is read of the page cache of one file system, and keeps which pages are there. User space maps
 * the same memory. It needs the page cache's tracepoints of Linux 6.12 and later. */
#include "kernel.h"

#define PAGE_SHIFT 12
#define NOWHERE (~0ULL)
/* A mark is a byte. The highest bit: the page has come, and whoever asked for it has not had it yet. The others: how often it
 * was read since somebody looked. */
#define FRESH 0x80u
#define READS_MAX 0x7fu
/* A byte of `touched` stands for so many marks. */
#define TOUCHED_SHIFT 9
/* Pages of one request that are gone through. */
#define REQUEST_PAGES_MAX 4096

/* Set by the loader: the files are those with this inode number and the next ones. */
const volatile u64 first_inode = 0;

struct control {
	u64 device; /* as the kernel packs its number; 0: none yet */
	u64 present; /* pages that are there */
	u64 left_unsaid; /* pages that have left without room in the ring */
};
/* Pages of a file, numbered over all files. */
struct file_pages {
	u64 first;
	u64 pages;
};
struct left {
	u64 first;
	u64 pages;
};

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct control);
} control SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct file_pages);
} file_pages SEC(".maps");
/* Eight marks a value. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} marks SEC(".maps");
/* Eight bytes a value: not 0 where a mark may have been made. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} touched SEC(".maps");
/* A bit a page: it is there. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} present SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 18);
} left SEC(".maps");

/* The request that a task is in, if it is for several pages: the kernel shows it batch by batch. */
struct request {
	u64 in, last, index, calls;
};
struct {
	MAP_NUMBER(type, MAP_TASK_STORAGE);
	MAP_NUMBER(map_flags, NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct request);
} requests SEC(".maps");

INLINE struct control *settings(void)
{
	u32 first = 0;
	return map_lookup(&control, &first);
}

INLINE struct file_pages *pages_of_file(struct inode *inode)
{
	struct control *control = settings();
	u32 file;
	if (!control || !control->device || inode->i_sb->s_dev != control->device)
		return NULL;
	file = inode->i_ino - first_inode;
	return map_lookup(&file_pages, &file);
}

INLINE u8 *mark_of(u64 page)
{
	u32 group = page >> 3;
	u8 *of_group = map_lookup(&marks, &group);
	return of_group ? of_group + (page & 7) : NULL;
}

INLINE int is_present(u64 page)
{
	u32 group = page >> 6;
	u64 *bits = map_lookup(&present, &group);
	return bits && (*bits >> (page & 63) & 1);
}

/* A page was read that is there. Marks are lost where two processors make the same one at once: it is marked all the same. */
INLINE void read_page(u64 page)
{
	u8 *mark = mark_of(page), *byte;
	u32 group;
	if (!mark)
		return;
	if (*mark & FRESH) {
		*mark &= ~FRESH;
		return;
	}
	if (*mark < READS_MAX)
		*mark += 1;
	group = page >> (TOUCHED_SHIFT + 3);
	byte = map_lookup(&touched, &group);
	if (!byte)
		return;
	byte += page >> TOUCHED_SHIFT & 7;
	if (!*byte)
		*byte = 1;
}

struct walk {
	u64 first;
	u64 goes_on;
};

/* A page of a request for several: it may not be there yet. Of a request that goes on it was marked before. */
static long read_one(u64 at, struct walk *walk)
{
	u64 page = walk->first + at;
	u8 *mark;
	if (!is_present(page))
		return 0;
	if (!walk->goes_on) {
		read_page(page);
		return 0;
	}
	mark = mark_of(page);
	if (mark)
		*mark &= ~FRESH;
	return 0;
}

/* Fires for every batch of folios that a read finds; `last` is the end of the whole request. */
SEC("tp_btf/mm_filemap_get_pages")
int pages_got(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1], last = context[2], calls = 0;
	struct inode *inode = mapping->host;
	struct file_pages *file = pages_of_file(inode);
	struct task_struct *task;
	struct request *request;
	struct walk walk = {};

	if (!file || index >= file->pages)
		return 0;
	if (last >= file->pages)
		last = file->pages - 1;
	task = current_task();
	request = task_storage_get(&requests, task, NULL, last > index ? STORAGE_CREATE : 0);
	if (request) {
		if (HAS_FIELD(task, ioac.syscr))
			calls = task->ioac.syscr;
		walk.goes_on = request->in == (u64)mapping && request->last == last && index > request->index &&
			       request->calls == calls;
		request->in = (u64)mapping;
		request->last = last;
		request->index = index;
		request->calls = calls;
	}
	walk.first = file->first + index;
	if (last > index || walk.goes_on) {
		u64 pages = last - index + 1;
		repeat(pages < REQUEST_PAGES_MAX ? pages : REQUEST_PAGES_MAX, read_one, &walk, 0);
	} else {
		read_page(walk.first);
	}
	return 0;
}

/* Fires when a page fault needs a page, and again when it is tried anew after I/O. */
SEC("tp_btf/mm_filemap_fault")
int page_faulted(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1];
	struct file_pages *file = pages_of_file(mapping->host);
	if (file && index < file->pages && is_present(file->first + index))
		read_page(file->first + index);
	return 0;
}

/* Fires when a page fault maps pages that are there. Which of them is meant is not said: all count. */
SEC("tp_btf/mm_filemap_map_pages")
int pages_mapped(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1], last = context[2];
	struct file_pages *file = pages_of_file(mapping->host);
	struct walk walk = {};
	if (!file || index >= file->pages || last < index)
		return 0;
	if (last >= file->pages)
		last = file->pages - 1;
	walk.first = file->first + index;
	repeat(last - index + 1 < 512 ? last - index + 1 : 512, read_one, &walk, 0);
	return 0;
}

/* What becomes of pages that come or leave. */
struct change {
	u64 first;
	u64 comes;
	u64 mark;
	u64 changed;
};

static long change_one(u64 at, struct change *change)
{
	u64 page = change->first + at, bit = 1ULL << (page & 63), before;
	u32 group = page >> 6;
	u64 *bits = map_lookup(&present, &group);
	u8 *mark = mark_of(page);
	if (!bits || !mark)
		return 0;
	*mark = change->mark;
	if (change->comes)
		before = __sync_fetch_and_or(bits, bit);
	else
		before = __sync_fetch_and_and(bits, ~bit);
	change->changed += !(before & bit) == !!change->comes;
	return 0;
}

INLINE int is_writing(void)
{
	struct task_struct *task = current_task();
	s64 call;
	if (task->flags & TASK_OF_KERNEL)
		return 0;
	/* write, pwrite64, writev, pwritev, pwritev2, copy_file_range of x86-64 */
	call = (s64)PEEK((struct pt_regs *)task_registers(task), orig_ax);
	return call == 1 || call == 18 || call == 20 || call == 296 || call == 328 || call == 326;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int page_added(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct file_pages *file = pages_of_file(folio->mapping->host);
	struct change change = { .comes = 1 };
	struct control *control;
	u64 index = folio->index;
	if (!file || index >= file->pages)
		return 0;
	/* What is written is not read by the same request. */
	change.mark = is_writing() ? 0 : FRESH;
	change.first = file->first + index;
	repeat(pages_of(folio), change_one, &change, 0);
	control = settings();
	if (control)
		__sync_fetch_and_add(&control->present, change.changed);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int page_left(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct file_pages *file = pages_of_file(folio->mapping->host);
	struct change change = {};
	struct control *control;
	struct left *said;
	u64 index = folio->index;
	u32 pages;
	if (!file || index >= file->pages)
		return 0;
	pages = pages_of(folio);
	change.first = file->first + index;
	repeat(pages, change_one, &change, 0);
	control = settings();
	if (!control)
		return 0;
	__sync_fetch_and_add(&control->present, -change.changed);
	said = ringbuf_reserve(&left, sizeof(*said), 0);
	if (!said) {
		__sync_fetch_and_add(&control->left_unsaid, pages);
		return 0;
	}
	said->first = change.first;
	said->pages = pages;
	ringbuf_submit(said, RING_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
