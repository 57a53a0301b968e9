/* SPDX-License-Identifier: GPL-2.0 */
/* Counts what happens in the page cache, and tells what leaves it.
 *
 * Two families of programs see the reads. `tracepoints/` (Linux 6.12 and later) live on the page cache's own
 * tracepoints; `functions/` (Linux 6.1 and later, where tracing of functions is allowed) on where
 * functions begin and end. The loader chooses one. What is added, dirtied and evicted has had
 * tracepoints in all of these kernels. */
#include "kernel.h"

#define TASK_RECLAIMS (0x800u | 0x20000u) /* PF_MEMALLOC: every reclaimer has it; PF_KSWAPD */
#define FAULT_MAJOR 4u
#define FAULT_NOPAGE 0x100u
#define FAULT_TRIED 0x20u
#define MODE_FORMAT 0170000
#define MODE_BLOCK 0060000
#define MAGIC_TMPFS 0x01021994
#define MAGIC_RAMFS 0x858458f6
#define MAGIC_HUGETLBFS 0x958458f6

/* Set by the loader. Without `count_pages` nothing is counted, and `page_left` is the only program at work. */
const volatile u8 count_pages = 1;
const volatile u8 count_files = 0;
const volatile u8 count_groups = 0;
const volatile u8 send_notices = 0;
/* Evicted pages are copied. Then these are the addresses at which the kernel keeps its own two bases. */
const volatile u8 send_pages = 0;
const volatile u64 vmemmap_base_at = 0;
const volatile u64 page_offset_base_at = 0;
/* References are sent if the lowest 24 bits of their hash are below this. */
const volatile u32 sample_below = 0;

/* The loader reads them in this order (probe/bpf.rs). In total and by cgroup the kernel counts refaults itself. */
enum field {
	ACCESSES, MISSES, ADDED_READ, ADDED_WRITE, RECLAIMED, TRUNCATED, INVALIDATED, DIRTIED, REFAULTS, FIELDS
};

struct counters {
	u64 of[FIELDS];
};
struct file_key {
	u32 device;
	u32 unused;
	u64 inode;
};
struct notice {
	u32 device;
	u32 generation;
	u64 inode;
	u64 index;
	u32 pages;
	u32 is_device;
};

struct {
	MAP_NUMBER(type, MAP_PERCPU_HASH);
	MAP_NUMBER(max_entries, 256);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counters);
} devices SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_PERCPU_HASH);
	MAP_NUMBER(max_entries, 1024);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct counters);
} groups SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_LRU_HASH);
	MAP_NUMBER(max_entries, 8192);
	MAP_TYPE(key, struct file_key);
	MAP_TYPE(value, struct counters);
} files SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_NUMBER(max_entries, 6); /* TALLIES */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SEC(".maps");
/* Not 0: no page is copied for now. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} held_back SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 24);
} pages SEC(".maps");
/* Not used here: memory of the kernel's, which does not move, in which the agent writes down where pages are in the
 * ring, for a host that reads both. */
struct memory_page {
	u8 bytes[1 << PAGE_SHIFT];
};
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAPPED);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct memory_page);
} places SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 22);
} notices SEC(".maps");
struct {
	MAP_NUMBER(type, MAP_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 20);
} references SEC(".maps");

/* WITHOUT_DATA: pages that were not copied and sent as notices. COPY_NS: time that the copies took, and COPY_TURN, how
 * many folios were copied: of these one in so many is timed, for all of them. LOST_GROUPS: counts for which there was no
 * room in groups. */
enum { LOST_NOTICES, LOST_REFERENCES, WITHOUT_DATA, COPY_NS, COPY_TURN, LOST_GROUPS, TALLIES };
enum { FOLIOS_TIMED_ONE_IN = 16 };
/* Data in a ring at which the reader is woken before its time. */
#define WAKE_BYTES 262144

/* What a task did last, so that one read or fault that shows up several times counts once. */
struct recent {
	u64 added_to, added_first, added_last;
	u64 read_from, read_index, read_last, read_calls;
	u64 faulted_in, faulted_at;
	u64 major_in, major_at;
	u64 mapped_in, mapped_first, mapped_last;
};
struct {
	MAP_NUMBER(type, MAP_TASK_STORAGE);
	MAP_NUMBER(map_flags, NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct recent);
} tasks SEC(".maps");

static const struct counters none;

INLINE struct recent *recent_of_task(void)
{
	return task_storage_get(&tasks, current_task(), NULL, STORAGE_CREATE);
}

INLINE u32 device_of(struct inode *inode)
{
	return (inode->i_mode & MODE_FORMAT) == MODE_BLOCK ? inode->i_rdev : inode->i_sb->s_dev;
}

/* What lives in memory alone is not a cache of anything. */
INLINE int is_cache(struct inode *inode)
{
	u64 magic = inode->i_sb->s_magic;
	return magic != MAGIC_TMPFS && magic != MAGIC_RAMFS && magic != MAGIC_HUGETLBFS;
}

INLINE u64 number_of(struct cgroup_subsys_state *state)
{
	struct cgroup *group = PEEK(state, cgroup);
	struct kernfs_node *node = PEEK(group, kn);
	return PEEK(node, id);
}

/* Number of the memory cgroup that the running task is in, 0 if there is none. */
INLINE u64 group_of_task(void)
{
	struct task_struct *task = current_task();
	struct cgroup_subsys_state *state = NULL;
	struct css_set *set;
	if (!count_groups)
		return 0;
	set = PEEK(task, cgroups);
	probe_read_kernel(&state, sizeof(state),
			  (void *)__builtin_preserve_access_index(&set->subsys) +
				  8 * ENUM_VALUE(enum cgroup_subsys_id, memory_cgrp_id));
	return state ? number_of(state) : 0;
}

/* The same of the cgroup that a folio is charged to. */
INLINE u64 group_of_folio(struct folio *folio)
{
	struct mem_cgroup *group;
	if (!count_groups)
		return 0;
	group = (void *)(PEEK(folio, memcg_data) & ~7UL);
	return group ? number_of(__builtin_preserve_access_index(&group->css)) : 0;
}

INLINE struct counters *find_or_make(void *map, const void *key)
{
	struct counters *found = map_lookup(map, key);
	if (found)
		return found;
	map_update(map, key, &none, IF_ABSENT);
	return map_lookup(map, key);
}

INLINE void count_lost(u32 what, u64 amount)
{
	u64 *counter = map_lookup(&lost, &what);
	if (counter)
		*counter += amount;
}

INLINE void count(struct inode *inode, u64 group, enum field field, s64 amount)
{
	u32 device = device_of(inode);
	struct counters *counters = find_or_make(&devices, &device);
	if (counters)
		counters->of[field] += amount;
	if (group) {
		counters = find_or_make(&groups, &group);
		if (counters)
			counters->of[field] += amount;
		else
			count_lost(LOST_GROUPS, 1);
	}
	if (count_files) {
		struct file_key key = { device, 0, inode->i_ino };
		counters = find_or_make(&files, &key);
		if (counters)
			__sync_fetch_and_add(&counters->of[field], amount);
	}
}

INLINE u64 wakes(void *ring)
{
	return ringbuf_query(ring, RING_AVAILABLE) >= WAKE_BYTES ? RING_FORCE_WAKEUP : RING_NO_WAKEUP;
}

/* Mixes all bits into all bits (the finisher of SplitMix64). */
INLINE u64 mixed(u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

#define SAMPLED_AT_ONCE 512

/* Where a read is. */
struct walk {
	u64 file;
	u64 first;
};

/* Sends a page of a read, if it is in the sample. */
static long refer_page(u64 at, struct walk *walk)
{
	u64 hash = mixed(walk->file + (walk->first + at) * 0x9e3779b97f4a7c15ULL), *place;
	if ((hash & 0xffffff) >= sample_below)
		return 0;
	place = ringbuf_reserve(&references, sizeof(*place), 0);
	if (!place) {
		count_lost(LOST_REFERENCES, 1);
		return 0;
	}
	*place = hash;
	ringbuf_submit(place, wakes(&references));
	return 0;
}

/* Sends those pages of a read that are in the sample. The kernel repeats that by its own means: were it a loop here, the
 * verifier would go through it page by page and keep what it saw, in blocks of 32 KiB and more. A small guest whose
 * memory is in pieces does not have these, and somebody in it would be killed for them. */
INLINE void refer(struct inode *inode, u64 first, u64 pages)
{
	struct walk walk = { .first = first };
	if (!sample_below)
		return;
	walk.file = mixed(((u64)device_of(inode) << 32) + inode->i_ino * 0x9e3779b97f4a7c15ULL);
	repeat(pages < SAMPLED_AT_ONCE ? pages : SAMPLED_AT_ONCE, refer_page, &walk, 0);
	if (pages > SAMPLED_AT_ONCE)
		count_lost(LOST_REFERENCES, (pages - SAMPLED_AT_ONCE) * sample_below >> 24);
}

/* Whether the task is in a system call that writes to the file or changes its size. Pages added then are the writer's. */
INLINE int is_changing(struct address_space *mapping)
{
	s64 call = system_call();
	return call == CALL_TRUNCATE || call == CALL_FTRUNCATE || call == CALL_FALLOCATE || is_writing(call, mapping);
}

/* ---- all kernels ---- */

SEC("tp_btf/mm_filemap_add_to_page_cache")
int page_added(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct address_space *mapping = folio->mapping;
	struct inode *inode = mapping->host;
	u64 first = folio->index, last;
	u32 pages = pages_of(folio);
	struct recent *recent;

	if (!is_cache(inode))
		return 0;
	if (is_changing(mapping)) {
		count(inode, group_of_folio(folio), ADDED_WRITE, pages);
		return 0;
	}
	count(inode, group_of_folio(folio), ADDED_READ, pages);
	recent = recent_of_task();
	if (!recent)
		return 0;
	last = first + pages - 1;
	if (recent->added_to != (u64)mapping) {
		recent->added_to = (u64)mapping;
		recent->added_first = first;
		recent->added_last = last;
	} else {
		if (first < recent->added_first)
			recent->added_first = first;
		if (last > recent->added_last)
			recent->added_last = last;
	}
	if (recent->faulted_in == (u64)mapping && recent->faulted_at >= first && recent->faulted_at <= last) {
		count(inode, group_of_task(), MISSES, 1);
		recent->major_in = (u64)mapping;
		recent->major_at = recent->faulted_at;
		recent->faulted_in = 0;
	}
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int page_dirtied(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct address_space *mapping = (void *)context[1];
	struct inode *inode;
	if (!mapping)
		return 0;
	inode = mapping->host;
	if (is_cache(inode))
		count(inode, group_of_folio(folio), DIRTIED, pages_of(folio));
	return 0;
}

/* ---- evicted pages with their data ---- */

enum { PAGE_BYTES = 1 << PAGE_SHIFT };
/* Interrupts are off meanwhile: of a larger folio the rest is sent as a notice. */
enum { PAGES_COPIED_MAX = 64 };

struct page_record {
	struct notice notice;
	u8 data[PAGE_BYTES];
};
struct copying {
	struct notice notice;
	/* Where the struct of the page is. */
	u64 page;
	u32 copied;
};
/* The kernel's two bases, which stay as they are once it has booted: read at the first copy. */
static struct {
	u64 vmemmap;
	u64 page_offset;
} bases;

/* Has the reader look at the pages each time that they fill another quarter of their ring: it polls, and less often
 * while nothing comes, but one run of kswapd evicts more than a small ring holds. It sleeps on the notices, since pages
 * stay in their ring after it has looked at them; a record there that is skipped wakes it. */
INLINE void call_reader(u32 copied)
{
	u64 quarter = ringbuf_query(&pages, RING_SIZE) / 4;
	u64 used = ringbuf_query(&pages, RING_AVAILABLE), added = copied * sizeof(struct page_record);
	void *nothing;
	if (!copied || !quarter || used / quarter == (used - added) / quarter)
		return;
	nothing = ringbuf_reserve(&notices, sizeof(u64), 0);
	if (nothing)
		ringbuf_discard(nothing, RING_FORCE_WAKEUP);
}

/* Copies one page; 1 if there is no room, or it cannot be read. */
static long copy_page(u64 at, struct copying *copying)
{
	u64 size = __builtin_preserve_type_info(*(struct page *)0, 1);
	u64 frame = (copying->page - bases.vmemmap) / size + at;
	struct page_record *record = ringbuf_reserve(&pages, sizeof(*record), 0);

	if (!record)
		return 1;
	if (probe_read_kernel(record->data, PAGE_BYTES, (void *)(bases.page_offset + (frame << PAGE_SHIFT)))) {
		ringbuf_discard(record, RING_NO_WAKEUP);
		return 1;
	}
	record->notice = copying->notice;
	record->notice.index += at;
	record->notice.pages = 1;
	ringbuf_submit(record, RING_NO_WAKEUP);
	copying->copied++;
	return 0;
}

/* Copies the first pages of a folio that `copying->notice` names, and cuts them off it. The folio is read
 * through `context`, since the verifier refuses arithmetic with a pointer that it trusts. */
INLINE void copy_pages(u64 *context, struct copying *copying)
{
	u64 begin = 0;
	u32 first = 0, pages = copying->notice.pages, turn = COPY_TURN;
	u32 *is_held_back = map_lookup(&held_back, &first);
	u64 *turns = map_lookup(&lost, &turn);

	if (is_held_back && !*is_held_back) {
		/* The clock takes as long as a tenth of a copy. */
		if (turns && (*turns)++ % FOLIOS_TIMED_ONE_IN == 0)
			begin = now_ns();
		if (!bases.page_offset) {
			probe_read_kernel(&bases.vmemmap, sizeof(u64), (void *)vmemmap_base_at);
			probe_read_kernel(&bases.page_offset, sizeof(u64), (void *)page_offset_base_at);
		}
		probe_read_kernel(&copying->page, sizeof(copying->page), context);
		if (pages == 1)
			copy_page(0, copying);
		else
			repeat(pages < PAGES_COPIED_MAX ? pages : PAGES_COPIED_MAX, copy_page, copying, 0);
		call_reader(copying->copied);
	}
	copying->notice.index += copying->copied;
	copying->notice.pages -= copying->copied;
	if (copying->notice.pages)
		count_lost(WITHOUT_DATA, copying->notice.pages);
	if (begin)
		count_lost(COPY_NS, (now_ns() - begin) * FOLIOS_TIMED_ONE_IN);
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int page_left(u64 *context)
{
	struct folio *folio = (void *)context[0];
	u32 reclaims = current_task()->flags & TASK_RECLAIMS, pages;
	enum field why = INVALIDATED;
	struct copying copying;
	struct notice *notice;
	struct inode *inode;

	if (!count_pages && !reclaims)
		return 0;
	inode = folio->mapping->host;
	if (!is_cache(inode))
		return 0;
	pages = pages_of(folio);
	if (reclaims)
		why = RECLAIMED;
	else if (inode->i_nlink == 0 || (s64)(folio->index << PAGE_SHIFT) >= inode->i_size)
		why = TRUNCATED;
	if (count_pages)
		count(inode, group_of_folio(folio), why, pages);
	if (why != RECLAIMED || !send_notices)
		return 0;
	copying.notice.device = device_of(inode);
	copying.notice.generation = inode->i_generation;
	copying.notice.inode = inode->i_ino;
	copying.notice.index = folio->index;
	copying.notice.pages = pages;
	copying.notice.is_device = (inode->i_mode & MODE_FORMAT) == MODE_BLOCK;
	copying.page = 0;
	copying.copied = 0;
	if (send_pages)
		copy_pages(context, &copying);
	if (!copying.notice.pages)
		return 0;
	notice = ringbuf_reserve(&notices, sizeof(*notice), 0);
	if (!notice) {
		count_lost(LOST_NOTICES, copying.notice.pages);
		return 0;
	}
	*notice = copying.notice;
	ringbuf_submit(notice, wakes(&notices));
	return 0;
}

/* ---- tracepoints: Linux 6.12 and later ---- */

/* Fires for every batch of folios that a read finds; `last` is the end of the whole request. */
SEC("tp_btf/mm_filemap_get_pages")
int pages_got(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1], last = context[2], end, behind, calls = 0;
	struct inode *inode = mapping->host;
	struct task_struct *task = current_task();
	struct recent *recent = recent_of_task();
	int goes_on, missed;

	if (!recent || !is_cache(inode))
		return 0;
	if (HAS_FIELD(task, ioac.syscr))
		calls = task->ioac.syscr;
	goes_on = recent->read_from == (u64)mapping && recent->read_last == last &&
		  index > recent->read_index && recent->read_calls == calls;
	missed = recent->added_to == (u64)mapping && index >= recent->added_first &&
		 index <= recent->added_last;
	behind = recent->read_from == (u64)mapping ? recent->read_last + 1 : 0;
	recent->added_to = 0;
	recent->read_from = (u64)mapping;
	recent->read_index = index;
	recent->read_last = last;
	recent->read_calls = calls;
	if (missed)
		count(inode, group_of_task(), MISSES, 1);
	if (goes_on)
		return 0;
	index = first_page(task, index, last, behind);
	/* A request may go beyond the end of the file. */
	end = inode->i_size > 0 ? (u64)(inode->i_size - 1) >> PAGE_SHIFT : 0;
	if (last > end)
		last = end;
	if (last < index)
		return 0;
	count(inode, group_of_task(), ACCESSES, last - index + 1);
	refer(inode, index, last - index + 1);
	return 0;
}

/* Fires when a page fault needs a page, and again when it is tried anew after I/O. */
SEC("tp_btf/mm_filemap_fault")
int page_faulted(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 index = context[1];
	struct inode *inode = mapping->host;
	struct recent *recent = recent_of_task();
	if (!recent || !is_cache(inode))
		return 0;
	if (recent->major_in == (u64)mapping && recent->major_at == index) {
		recent->major_in = 0;
		return 0;
	}
	if (recent->faulted_in == (u64)mapping && recent->faulted_at == index) {
		recent->faulted_in = 0;
		return 0;
	}
	recent->faulted_in = (u64)mapping;
	recent->faulted_at = index;
	if (!(recent->mapped_in == (u64)mapping && index >= recent->mapped_first && index <= recent->mapped_last)) {
		count(inode, group_of_task(), ACCESSES, 1);
		refer(inode, index, 1);
	}
	recent->mapped_in = 0;
	return 0;
}

/* Fires when a page fault maps pages that are there, its neighbours too. */
SEC("tp_btf/mm_filemap_map_pages")
int pages_mapped(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	u64 first = context[1], last = context[2];
	struct inode *inode = mapping->host;
	struct recent *recent = recent_of_task();
	if (!recent || !is_cache(inode))
		return 0;
	if (recent->major_in == (u64)mapping && recent->major_at >= first && recent->major_at <= last) {
		recent->major_in = 0;
		return 0;
	}
	/* A second try after readahead was begun. */
	if (recent->faulted_in == (u64)mapping && recent->faulted_at >= first && recent->faulted_at <= last) {
		recent->faulted_in = 0;
		return 0;
	}
	recent->faulted_in = 0;
	recent->mapped_in = (u64)mapping;
	recent->mapped_first = first;
	recent->mapped_last = last;
	count(inode, group_of_task(), ACCESSES, 1);
	refer(inode, first, 1);
	return 0;
}

/* ---- functions: Linux 6.1 and later ---- */

SEC("fexit/filemap_read")
int read_ended(u64 *context)
{
	struct kiocb *request = (void *)context[0];
	s64 bytes = (s64)context[3] - (s64)context[2], end = request->ki_pos;
	struct inode *inode = request->ki_filp->f_mapping->host;
	u64 first, pages;
	if (bytes <= 0 || !is_cache(inode))
		return 0;
	first = (u64)(end - bytes) >> PAGE_SHIFT;
	pages = ((u64)(end - 1) >> PAGE_SHIFT) - first + 1;
	count(inode, group_of_task(), ACCESSES, pages);
	refer(inode, first, pages);
	return 0;
}

/* A reader looked, and the page was not there. */
SEC("fentry/page_cache_sync_ra")
int read_missed(u64 *context)
{
	struct readahead_control *readahead = (void *)context[0];
	struct inode *inode = readahead->mapping->host;
	/* Page faults come here too; what they miss is counted where they end. */
	if (is_cache(inode) && system_call() != -1)
		count(inode, group_of_task(), MISSES, 1);
	return 0;
}

SEC("fexit/filemap_fault")
int fault_ended(u64 *context)
{
	struct vm_fault *fault = (void *)context[0];
	u32 result = context[1];
	struct inode *inode = fault->vma->vm_file->f_mapping->host;
	if (!is_cache(inode))
		return 0;
	if (fault->flags & FAULT_TRIED)
		return 0;
	count(inode, group_of_task(), ACCESSES, 1);
	if (result & FAULT_MAJOR)
		count(inode, group_of_task(), MISSES, 1);
	refer(inode, fault->pgoff, 1);
	return 0;
}

SEC("fexit/filemap_map_pages")
int map_ended(u64 *context)
{
	struct vm_fault *fault = (void *)context[0];
	u32 result = context[3];
	struct inode *inode = fault->vma->vm_file->f_mapping->host;
	/* Otherwise the fault goes on, or comes from a second try. */
	if (!(result & FAULT_NOPAGE) || (fault->flags & FAULT_TRIED) || !is_cache(inode))
		return 0;
	count(inode, group_of_task(), ACCESSES, 1);
	refer(inode, fault->pgoff, 1);
	return 0;
}

/* ---- where functions can be traced, whatever counts the reads ---- */

/* A page has been added that was evicted lately. */
SEC("fentry/workingset_refault")
int page_refaulted(u64 *context)
{
	struct folio *folio = (void *)context[0];
	u64 mapping = (u64)PEEK(folio, mapping);
	struct inode *inode;
	/* Pages that come back from swap belong to no file. */
	if (!mapping || mapping & 3)
		return 0;
	inode = folio->mapping->host;
	if (is_cache(inode))
		count(inode, group_of_folio(folio), REFAULTS, pages_of(folio));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
