// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The two programs that run in the kernel, and what they leave behind; `record.rs` reads it.
//
// 1. writeback_dirty_folio(folio, mapping): a folio that was clean is dirty now.
// 2. sb_clear_inode_writeback(inode): the last page of a file that was on its way to disk has arrived, whoever sent it.
//
// Both leave at once when the file is not a regular file of the device that is watched; otherwise they write one record. When
// the ring is full they count it and note the file in a table, so that it can be looked through later; what that table cannot
// take is counted as well.
//
// Of the kernel's types only what is read is declared: libbpf looks up where the running kernel keeps it.

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_RINGBUF = 27, BPF_ANY = 0, BPF_RB_NO_WAKEUP = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
};

struct address_space {
	struct inode *host;
};

struct folio {
	unsigned long flags;
	unsigned long index;
	// The order of a large folio: in a byte of its own up to Linux 6.5, then in the lowest byte of the second page's flags.
	__u8 _folio_order;
	unsigned long _flags_1;
};

// Linux 6.18 wraps flags in a structure.
struct memdesc {
	unsigned long f;
};

struct folio___wrapped {
	struct memdesc flags;
	struct memdesc _flags_1;
};

#pragma clang attribute pop

enum pageflags { PG_head };

#define FLAGS(folio, member)                                                                                           \
	(bpf_core_field_exists((folio)->member) ? (folio)->member : ((struct folio___wrapped *)(folio))->member.f)

#define KIND_OF_FILE 0170000
#define REGULAR 0100000
// In place of a folio's order.
#define WRITTEN 0x100

struct key {
	__u64 ino;
	__u32 generation;
	__u32 what;
};

struct record {
	struct key key;
	__u64 index;
	__u64 time;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1); // set when it is loaded
} ring SEC(".maps");

// Files that are noted while the ring is full, with the time.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16 << 10);
	__type(key, struct key);
	__type(value, __u64);
} overflowed SEC(".maps");

// Records lost, and of these those whose file could not be noted.
struct {
	__u64 lost;
	__u64 unnoted;
} counters;

// What is watched, as the kernel numbers it.
const volatile __u32 device;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline int tell(const struct inode *inode, __u32 what, __u64 index)
{
	struct record record = {
		.key = { .ino = inode->i_ino, .generation = inode->i_generation, .what = what },
		.index = index,
		.time = bpf_ktime_get_ns(),
	};

	// The ring is emptied by the clock, which costs the writers least.
	if (bpf_ringbuf_output(&ring, &record, sizeof(record), BPF_RB_NO_WAKEUP) == 0)
		return 0;
	__sync_fetch_and_add(&counters.lost, 1);
	record.key.what = 0;
	if (bpf_map_update_elem(&overflowed, &record.key, &record.time, BPF_ANY) != 0)
		__sync_fetch_and_add(&counters.unnoted, 1);
	return 0;
}

static __always_inline int watched(const struct inode *inode)
{
	return inode && inode->i_sb->s_dev == device && (inode->i_mode & KIND_OF_FILE) == REGULAR;
}

SEC("tp_btf/writeback_dirty_folio")
int dirtied(__u64 *ctx)
{
	struct folio *folio = (void *)ctx[0];
	struct address_space *mapping = (void *)ctx[1];
	struct inode *inode = mapping ? mapping->host : 0;
	__u32 order = 0;

	if (!watched(inode))
		return 0;
	if (FLAGS(folio, flags) & 1UL << bpf_core_enum_value(enum pageflags, PG_head))
		order = bpf_core_field_exists(folio->_folio_order) ? folio->_folio_order : FLAGS(folio, _flags_1) & 0xff;
	return tell(inode, order, folio->index);
}

SEC("tp_btf/sb_clear_inode_writeback")
int written(__u64 *ctx)
{
	struct inode *inode = (void *)ctx[0];

	return watched(inode) ? tell(inode, WRITTEN, 0) : 0;
}
