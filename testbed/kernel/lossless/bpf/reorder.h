/* A NIC that puts packets in order before rxe has them, as NICs do that know adaptive routing: what comes too early waits, up
 * to a number of packets or bytes of a queue pair, until the missing one is there or a time is over.
 *
 * A program can neither keep a packet nor have it come in again. An ifb device does both: what it gets it has the kernel
 * receive once more, where nobody captures it a second time, and its qdisc is ours. */
#ifndef REORDER_H
#define REORDER_H
#include "roce.h"

#define OP_READ_FIRST 0x0d
#define OP_READ_LAST 0x0f
#define OP_READ_ONLY 0x10
#define OP_UNCONNECTED 0x40 /* those of RC and UC are below */
#define PSN_MASK 0xffffff
#define AHEAD(psn, of) (((psn) - (of)) & PSN_MASK)
#define BEHIND (1 << 23)
#define READS 16 /* that a queue pair has sent and that are not answered, at most */
#define ENDS_READ (1 << 24)

/* What a queue pair gets in the order of its PSNs: requests, or the responses to its READs. */
struct sequence {
	__u8 address[16]; /* of this side */
	__u32 qpn, responses;
	__u64 serial; /* of its connection */
	__u64 want;   /* the next PSN, which goes on to count where a PSN wraps */
	__u32 known;  /* whether that is known */
	__u32 refused; /* rxe has said that it wants this one, and drops all after it */
	__u32 starts[READS], first_start, number_of_starts; /* the first PSNs of READs that wait for their responses */
	__u64 held, held_bytes, hole_at;
	__u64 gives_up;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sequence);
} sequences SEC(".maps");
struct sequence_key {
	__u8 address[16];
	__u32 qpn, port, responses, unused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sequence_key);
	__type(value, __u32);
} sequence_slots SEC(".maps");

struct held_packet {
	struct bpf_rb_node node;
	struct sk_buff __kptr *skb;
	__u64 number; /* its PSN, as `want` */
	__u32 advance, length;
};
struct tree {
	struct bpf_spin_lock lock;
	struct bpf_rb_root root __contains(held_packet, node);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tree);
} trees SEC(".maps");

static __always_inline struct sequence *sequence_of(__u32 port, __u32 slot)
{
	__u32 key = port * SEQUENCES + (slot & (SEQUENCES - 1));

	return bpf_map_lookup_elem(&sequences, &key);
}
static __always_inline struct tree *tree_of(__u32 port, __u32 slot)
{
	__u32 key = port * SEQUENCES + (slot & (SEQUENCES - 1));

	return bpf_map_lookup_elem(&trees, &key);
}
static bool comes_before(struct bpf_rb_node *one, const struct bpf_rb_node *other)
{
	return container_of(one, struct held_packet, node)->number < container_of(other, struct held_packet, node)->number;
}

/* The sequence of a queue pair of this side. A new one begins with the PSN that its connection says, or, if another one had
 * its slot meanwhile, with its next packet. A slot in which packets wait is not taken. */
static __always_inline struct sequence *find_sequence(__u32 port, struct port_state *state, const __u8 *address, __u32 qpn,
						      __u32 responses, struct peer *peer, __u32 *slot)
{
	struct sequence_key key = { .qpn = qpn, .port = port, .responses = responses };
	struct sequence *sequence;
	__u32 *found;

	__builtin_memcpy(key.address, address, 16);
	found = bpf_map_lookup_elem(&sequence_slots, &key);
	if (found) {
		*slot = *found;
		sequence = sequence_of(port, *slot);
		if (sequence && sequence->serial == peer->serial && sequence->qpn == qpn && sequence->responses == responses)
			return sequence;
	}
	*slot = state->sequences & (SEQUENCES - 1);
	sequence = sequence_of(port, *slot);
	if (!sequence)
		return (void *)0;
	state->sequences++;
	if (sequence->held) {
		state->unsorted++;
		return (void *)0;
	}
	__builtin_memset(sequence, 0, sizeof(*sequence));
	__builtin_memcpy(sequence->address, address, 16);
	sequence->qpn = qpn;
	sequence->responses = responses;
	sequence->serial = peer->serial;
	sequence->want = 1 << 24 | (peer->psn & PSN_MASK);
	sequence->known = !responses && !peer->sorted;
	peer->sorted |= !responses;
	bpf_map_update_elem(&sequence_slots, &key, slot, 0);
	return sequence;
}

/* The next PSN is known anew: by what this side asks for, or has not got. */
static __always_inline void expect(struct sequence *sequence, __u32 psn)
{
	__u32 ahead = AHEAD(psn, sequence->want);

	sequence->want += ahead;
	if (ahead >= BEHIND)
		sequence->want -= 1 << 24;
	sequence->known = 1;
}
/* The packet that is due goes to rxe. After the last response to a READ the next one is that to the next READ. */
static __always_inline void advance(struct sequence *sequence, __u32 by)
{
	if (!(by & ENDS_READ)) {
		sequence->want += by;
		return;
	}
	sequence->want++;
	if (sequence->number_of_starts) {
		sequence->first_start = (sequence->first_start + 1) & (READS - 1);
		sequence->number_of_starts--;
	}
	sequence->known = sequence->number_of_starts != 0;
	if (sequence->known)
		expect(sequence, sequence->starts[sequence->first_start & (READS - 1)]);
}

/* What this side sends: a READ says which responses come, a refusal which PSN it still wants. */
GLOBAL int follow_sent(struct __sk_buff *ctx, __u32 port, struct port_state *state)
{
	struct roce data = {};
	struct sequence *sequence;
	struct peer *peer;
	__u32 *own, slot;

	if (!state || !read_roce(ctx, &data))
		return 0;
	if (data.opcode != OP_READ_REQUEST && !(data.opcode == OP_ACK && data.syndrome >> 5))
		return 0;
	own = own_qpn(&data);
	peer = own ? peer_of(data.source, *own) : (void *)0;
	if (!peer)
		return 0;
	sequence = find_sequence(port, state, data.source, *own, data.opcode == OP_READ_REQUEST, peer, &slot);
	if (!sequence)
		return 0;
	if (data.opcode == OP_ACK) {
		expect(sequence, data.psn);
		sequence->refused = 1;
		return 0;
	}
	if (!sequence->number_of_starts || AHEAD(data.psn, sequence->want) >= BEHIND) {
		expect(sequence, data.psn); /* the first, or one that is sent again */
		if (sequence->number_of_starts)
			return 0;
	} else if (!AHEAD(data.psn, sequence->want)) {
		return 0;
	}
	if (sequence->number_of_starts < READS) {
		slot = sequence->first_start + sequence->number_of_starts++;
		sequence->starts[slot & (READS - 1)] = data.psn;
	}
	return 0;
}

/* A packet that came in: to the ifb that has it wait or go on; NEXT if it has no place in a sequence. */
GLOBAL int sort(struct __sk_buff *ctx, __u32 port, struct port_config *config, struct roce *data)
{
	struct port_state *state = state_of(port);
	struct sequence *sequence;
	__u32 slot, by = 1, responses;
	struct peer *peer;

	if (!config || !state || !data || data->opcode >= OP_UNCONNECTED || data->opcode == OP_ACK ||
	    data->opcode == OP_ATOMIC_ACK)
		return NEXT;
	peer = peer_of(data->target, data->qpn);
	if (!peer)
		return NEXT;
	responses = data->opcode >= OP_READ_FIRST && data->opcode <= OP_READ_ONLY;
	sequence = find_sequence(port, state, data->target, data->qpn, responses, peer, &slot);
	if (!sequence)
		return NEXT;
	if (data->opcode == OP_READ_REQUEST)
		by = (data->length + peer->mtu - 1) / (peer->mtu ?: 1) ?: 1;
	else if (data->opcode == OP_READ_LAST || data->opcode == OP_READ_ONLY)
		by = ENDS_READ;
	ctx->cb[0] = data->psn;
	ctx->cb[1] = by;
	ctx->cb[2] = slot;
	return bpf_redirect(config->sorter, 0);
}
#endif
