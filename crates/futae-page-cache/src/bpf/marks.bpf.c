/* SPDX-License-Identifier: GPL-2.0 */
/* Marks what is read of the page cache of one file system, and keeps which pages are there. User space maps
 * the same memory. It needs the page cache's tracepoints of Linux 6.12 and later. */
#include "kernel.h"

#define NOWHERE (~0ULL)
/* A mark is a byte. The highest bit: the page has come, and the reader that asked for it has not had it yet. The others: how often it
 * was read since somebody looked. */
#define FRESH 0x80u
#define READS_MAX 0x7fu
/* A byte of `touched` stands for so many marks. */
#define TOUCHED_SHIFT 9
/* Pages of one request that are gone through. */
#define REQUEST_PAGES_MAX 4096

/* Set by the loader. Either all pages of a few files have numbers: the files with this inode number and the next ones. */
const volatile u64 first_inode = 0;
/* Or pages of any files get numbers below this as they come, and give them back as they leave. */
const volatile u64 numbers_max = 0;
/* Pages that leave are copied, with what they hold. Then these are the addresses at which the kernel keeps its own two bases. */
const volatile u64 copies = 0;
const volatile u64 vmemmap_base_at = 0;
const volatile u64 page_offset_base_at = 0;

struct control {
	u64 device; /* as the kernel packs its number; 0: none yet */
	u64 present; /* pages that are there and have a number */
	u64 left_unreported; /* pages that have left without room in the ring */
	u64 lost; /* pages that have come without a number, and without room in the ring */
	u64 given; /* numbers that were ever given to a page that came */
	u64 faults; /* that mapped pages */
	/* Of a look at mapped pages: one in every so many, and which of them. */
	u64 apart, turn;
	u64 areas; /* mappings of pages that looks have found */
	u64 mapped_used; /* pages that looks have found used again */
};
/* Pages of a file, numbered over all files. */
struct file_pages {
	u64 first;
	u64 pages;
};
/* A page, or the first of several. */
struct place {
	u64 inode;
	u64 index;
};
struct said {
	struct place first;
	u64 pages;
	u64 what;
};
/* What is said of pages. */
#define LEFT 0
#define UNNUMBERED 1 /* they have come, and there was no number for them */

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
/* A bit a page: a look has found it accessed through a map, since it was last mapped. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} looked_at SEC(".maps");
/* Of pages that get numbers as they come: the number of each that is there, whose each number is, and numbers that were given back. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, struct place);
	MAP_TYPE(value, u64);
} numbers SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct place);
} owners SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_STACK);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(value, u32);
} given_back SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 18);
} news SEC(".maps");

/* Pages that have left, if they are copied. */
enum { PAGE_BYTES = 1 << PAGE_SHIFT };
struct left_page {
	struct place place;
	u8 data[PAGE_BYTES];
};
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << PAGE_SHIFT);
} left_pages SEC(".maps");

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

INLINE int is_watched(struct inode *inode)
{
	struct control *control = settings();
	return control && control->device && inode->i_sb->s_dev == control->device;
}

/* Pages of a file, if all of them have numbers. */
INLINE struct file_pages *pages_of_file(struct inode *inode)
{
	u32 file = inode->i_ino - first_inode;
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

/* A file as a request goes through it. */
struct walk {
	struct place first;
	u64 pages; /* that it has */
	u64 number; /* of the first page, if all have numbers */
	u64 goes_on;
};

/* Begins at a page of a file. False if nobody watches it, or it has no such page. */
INLINE int begin_walk(struct walk *walk, struct inode *inode, u64 index)
{
	struct file_pages *file;
	if (!is_watched(inode))
		return 0;
	walk->first.inode = inode->i_ino;
	walk->first.index = index;
	if (numbers_max) {
		s64 size = inode->i_size;
		walk->pages = size <= 0 ? 0 : (((u64)size - 1) >> PAGE_SHIFT) + 1;
	} else {
		file = pages_of_file(inode);
		if (!file)
			return 0;
		walk->pages = file->pages;
		walk->number = file->first + index;
	}
	return index < walk->pages;
}

/* The number of a page of it that is there. */
INLINE u64 number_at(struct walk *walk, u64 at)
{
	u64 *known, number = walk->number + at;
	struct place place = { walk->first.inode, walk->first.index + at };
	if (numbers_max) {
		known = map_lookup(&numbers, &place);
		return known ? *known : NOWHERE;
	}
	return is_present(number) ? number : NOWHERE;
}

/* A page of a request for several: it may not be there yet. Of a request that goes on it was marked before. */
static long read_one(u64 at, struct walk *walk)
{
	u64 page = number_at(walk, at);
	u8 *mark;
	if (page == NOWHERE)
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
	u64 index = context[1], last = context[2], begin = index, behind = 0, calls = 0;
	struct task_struct *task;
	struct request *request;
	struct walk walk = {};

	if (!begin_walk(&walk, mapping->host, index))
		return 0;
	if (last >= walk.pages)
		last = walk.pages - 1;
	task = current_task();
	request = task_storage_get(&requests, task, NULL, last > index ? STORAGE_CREATE : 0);
	if (request) {
		if (HAS_FIELD(task, ioac.syscr))
			calls = task->ioac.syscr;
		walk.goes_on = request->in == (u64)mapping && request->last == last && index > request->index &&
			       request->calls == calls;
		/* Pages before this batch may have been handed out since the last one that was traced. */
		begin = request->index;
		behind = request->in == (u64)mapping ? request->last + 1 : 0;
		request->in = (u64)mapping;
		request->last = last;
		request->index = index;
		request->calls = calls;
	}
	/* A new request may have begun in a batch that was not traced. */
	if (!walk.goes_on)
		begin = first_page(task, index, context[2], behind);
	walk.first.index -= index - begin;
	walk.number -= index - begin;
	if (last > begin || walk.goes_on) {
		u64 pages = last - begin + 1;
		repeat(pages < REQUEST_PAGES_MAX ? pages : REQUEST_PAGES_MAX, read_one, &walk, 0);
	} else if (numbers_max) {
		read_one(0, &walk);
	} else {
		read_page(walk.number);
	}
	return 0;
}

/* A page is mapped, which sets the bit that a look looks for. */
static long map_one(u64 at, struct walk *walk)
{
	u64 page = number_at(walk, at), *bits;
	u32 group = page >> 6;
	if (page == NOWHERE)
		return 0;
	read_page(page);
	bits = map_lookup(&looked_at, &group);
	if (bits && *bits)
		__sync_fetch_and_and(bits, ~(1ULL << (page & 63)));
	return 0;
}

INLINE void count_fault(void)
{
	struct control *control = settings();
	if (control)
		__sync_fetch_and_add(&control->faults, 1);
}

/* Fires when a page fault needs a page, and again when it is tried anew after I/O. */
SEC("tp_btf/mm_filemap_fault")
int page_faulted(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	struct walk walk = {};
	if (!begin_walk(&walk, mapping->host, context[1]))
		return 0;
	count_fault();
	map_one(0, &walk);
	return 0;
}

/* Fires when a page fault maps pages that are there. Which of them is meant is not said: all count. */
SEC("tp_btf/mm_filemap_map_pages")
int pages_mapped(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1], last = context[2];
	struct walk walk = {};
	if (last < index || !begin_walk(&walk, mapping->host, index))
		return 0;
	if (last >= walk.pages)
		last = walk.pages - 1;
	count_fault();
	repeat(last - index + 1 < 512 ? last - index + 1 : 512, map_one, &walk, 0);
	return 0;
}

/* What becomes of pages that come or leave. */
struct change {
	struct place first;
	u64 number; /* of the first page, if all have numbers */
	u64 mark;
	u64 changed;
	u64 unnumbered;
};

/* Sets or clears the bit and the mark of a page. */
INLINE u64 change_page(u64 page, u64 comes, u64 with)
{
	u64 bit = 1ULL << (page & 63), before;
	u32 group = page >> 6;
	u64 *bits = map_lookup(&present, &group);
	u8 *mark = mark_of(page);
	if (!bits || !mark)
		return 0;
	*mark = with;
	if (comes)
		before = __sync_fetch_and_or(bits, bit);
	else
		before = __sync_fetch_and_and(bits, ~bit);
	return !(before & bit) == !!comes;
}

/* A number for a page that comes; all pages of a file come and leave under their locks, so nobody else does it for the same one. */
INLINE u64 number_for(struct place *place)
{
	struct control *control = settings();
	u64 number, *known = map_lookup(&numbers, place);
	struct place *owner;
	u32 old;
	if (known)
		return *known;
	if (!control)
		return NOWHERE;
	if (!map_pop(&given_back, &old))
		number = old;
	else if (control->given < numbers_max)
		number = __sync_fetch_and_add(&control->given, 1);
	else
		return NOWHERE;
	old = number;
	owner = map_lookup(&owners, &old);
	if (!owner)
		return NOWHERE;
	*owner = *place;
	if (map_update(&numbers, place, &number, 0)) {
		map_push(&given_back, &old, 0);
		return NOWHERE;
	}
	return number;
}

static long come_one(u64 at, struct change *change)
{
	struct place place = { change->first.inode, change->first.index + at };
	u64 number = numbers_max ? number_for(&place) : change->number + at;
	if (number == NOWHERE)
		change->unnumbered = 1; /* a count would have the verifier follow each of them */
	else
		change->changed += change_page(number, 1, change->mark);
	return 0;
}

static long leave_one(u64 at, struct change *change)
{
	struct place place = { change->first.inode, change->first.index + at };
	u64 *known, number = change->number + at;
	u32 old;
	if (!numbers_max) {
		change->changed += change_page(number, 0, 0);
		return 0;
	}
	known = map_lookup(&numbers, &place);
	if (!known)
		return 0;
	number = *known;
	map_delete(&numbers, &place);
	change->changed += change_page(number, 0, 0);
	old = number;
	map_push(&given_back, &old, 0);
	return 0;
}

INLINE int begin_change(struct change *change, struct inode *inode, u64 index)
{
	struct file_pages *file;
	if (!is_watched(inode))
		return 0;
	change->first.inode = inode->i_ino;
	change->first.index = index;
	if (numbers_max)
		return 1;
	file = pages_of_file(inode);
	if (!file || index >= file->pages)
		return 0;
	change->number = file->first + index;
	return 1;
}

INLINE void say(struct place *first, u64 pages, u64 what)
{
	struct said *said = ringbuf_reserve(&news, sizeof(*said), 0);
	struct control *control = settings();
	if (!said) {
		if (control)
			__sync_fetch_and_add(what == LEFT ? &control->left_unreported : &control->lost, pages);
		return;
	}
	said->first = *first;
	said->pages = pages;
	said->what = what;
	ringbuf_submit(said, RING_NO_WAKEUP);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int page_added(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct change change = {};
	struct control *control;
	u32 pages;
	if (!begin_change(&change, folio->mapping->host, folio->index))
		return 0;
	pages = pages_of(folio);
	/* What is written is not read by the same request. */
	change.mark = is_writing(system_call(), folio->mapping) ? 0 : FRESH;
	repeat(pages, come_one, &change, 0);
	control = settings();
	if (control)
		__sync_fetch_and_add(&control->present, change.changed);
	if (change.unnumbered)
		say(&change.first, pages, UNNUMBERED);
	return 0;
}

/* Where the pages of a folio are: the struct of the first, and the kernel's two bases. */
struct copying {
	struct place first;
	u64 page, vmemmap, page_offset;
};

/* 1 if there is no room, or it cannot be read: then it has left without its data. */
static long copy_page(u64 at, struct copying *copying)
{
	u64 size = __builtin_preserve_type_info(*(struct page *)0, 1);
	u64 frame = (copying->page - copying->vmemmap) / size + at;
	struct left_page *copy = ringbuf_reserve(&left_pages, sizeof(*copy), 0);
	if (!copy)
		return 1;
	if (probe_read_kernel(copy->data, PAGE_BYTES, (void *)(copying->page_offset + (frame << PAGE_SHIFT)))) {
		ringbuf_discard(copy, RING_NO_WAKEUP);
		return 1;
	}
	copy->place.inode = copying->first.inode;
	copy->place.index = copying->first.index + at;
	ringbuf_submit(copy, RING_NO_WAKEUP);
	return 0;
}

/* Copies the pages of a folio that are whole. It is read through `context`, since the verifier refuses arithmetic with a pointer that
 * it trusts. */
INLINE void copy_pages(u64 *context, struct place *first, u32 pages)
{
	struct copying copying = { *first };
	unsigned long flags = 0;
	probe_read_kernel(&copying.page, sizeof(copying.page), context);
	probe_read_kernel(&flags, sizeof(flags), (void *)copying.page); /* the first word */
	if (!(flags & (1UL << ENUM_VALUE(enum pageflags, PG_uptodate))))
		return;
	probe_read_kernel(&copying.vmemmap, sizeof(u64), (void *)vmemmap_base_at);
	probe_read_kernel(&copying.page_offset, sizeof(u64), (void *)page_offset_base_at);
	if (pages == 1)
		copy_page(0, &copying);
	else
		repeat(pages < 64 ? pages : 64, copy_page, &copying, 0);
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int page_left(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct change change = {};
	struct control *control;
	u32 pages;
	if (!begin_change(&change, folio->mapping->host, folio->index))
		return 0;
	pages = pages_of(folio);
	repeat(pages, leave_one, &change, 0);
	control = settings();
	if (control)
		__sync_fetch_and_add(&control->present, -change.changed);
	if (copies)
		copy_pages(context, &change.first, pages);
	say(&change.first, pages, LEFT);
	return 0;
}

#include "mapped.h"

char LICENSE[] SEC("license") = "GPL";
