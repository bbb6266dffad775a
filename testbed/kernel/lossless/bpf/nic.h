/* What a RoCE NIC does about congestion: as the receiver of data (notification point) it answers marks with CNPs, as their
 * receiver, and that of acknowledgements (reaction point), it slows a queue pair down. */
#ifndef NIC_H
#define NIC_H
#include "control.h"
#include "reorder.h"

struct flow_key {
	__u8 address[16]; /* of the peer */
	__u32 qpn, port;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, __u32);
} slots SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, __u64);
} notified SEC(".maps");

/* Telemetry (INT): what each data packet of HPCC's meets is noted in memory that ports and NICs share, not in its header.
 * Its receiver answers with an echo, and then the sender reads the note. */
struct flow_name {
	__u8 source[16], target[16];
	__u32 qpn, unused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_name);
	__type(value, __u32);
} flow_numbers SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct journey);
} journeys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct journey);
} last_journeys SEC(".maps");

static __always_inline int is_data(const struct roce *data)
{
	return data->opcode < OP_UNCONNECTED && data->opcode != OP_ACK && data->opcode != OP_ATOMIC_ACK;
}
static __always_inline __u32 *flow_number(const struct roce *data)
{
	struct flow_name name = { .qpn = data->qpn };

	__builtin_memcpy(name.source, data->source, 16);
	__builtin_memcpy(name.target, data->target, 16);
	return bpf_map_lookup_elem(&flow_numbers, &name);
}
/* A packet that leaves a switch: the qdisc notes what it meets, under the name of its queue pair and its PSN. */
GLOBAL int name_journey(struct __sk_buff *ctx)
{
	struct roce data = {};
	__u32 *flow;

	if (!read_roce(ctx, &data) || !is_data(&data))
		return 0;
	flow = flow_number(&data);
	if (!flow)
		return 0;
	ctx->cb[3] = *flow;
	ctx->cb[4] = data.psn;
	return 0;
}
static __always_inline void begin_journey(struct flow *flow, __u64 key)
{
	struct journey journey = { .sent_bytes = flow->sent_bytes, .psn = key & PSN_MASK };

	if (flow->update_psn == NO_PSN)
		flow->update_psn = journey.psn;
	flow->next_psn = (key + 1) & PSN_MASK;
	bpf_map_update_elem(&journeys, &key, &journey, 0);
}
static __always_inline void note_hop(const struct port_config *config, const struct port_state *state, __u32 port,
				     __u64 key, __u64 queue, __u64 now)
{
	struct journey *journey = bpf_map_lookup_elem(&journeys, &key);
	struct hop *hop;

	if (!journey || journey->hops >= HOPS)
		return;
	hop = &journey->hop[journey->hops];
	hop->at = now;
	hop->bytes = state->link_bytes;
	hop->port = port;
	hop->queue = queue;
	hop->ns_per_kib = config->ns_per_kib;
	journey->hops++;
}
/* An echo came: the window and the rate of its queue pair. */
static __always_inline void take_echo(struct __sk_buff *ctx, __u32 port, struct port_config *config,
				      struct control *control, struct flow *flow, __u32 slot, __u32 psn, __u64 now)
{
	__u64 key = JOURNEY(port * FLOWS + slot + 1, psn);
	struct journey *journey = bpf_map_lookup_elem(&journeys, &key), *last;
	__u32 index = port * FLOWS + slot;

	last = bpf_map_lookup_elem(&last_journeys, &index);
	if (!journey || !last)
		return;
	flow->echo_at = now;
	if (journey->sent_bytes > flow->acked_bytes)
		flow->acked_bytes = journey->sent_bytes;
	on_telemetry(flow, last, journey, &control->hpcc, line_rate(config));
	bpf_map_delete_elem(&journeys, &key);
	send_made(ctx, ctx->ifindex, MAKE_WAKE, 0);
}

static __always_inline struct flow *find_flow(struct flow_key *key, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&slots, key);
	struct flow *flow;

	if (!found)
		return (void *)0;
	*slot = *found;
	flow = flow_of(key->port, *found);
	if (!flow || flow->qpn != key->qpn || __builtin_memcmp(flow->address, key->address, 16))
		return (void *)0; /* an earlier lab's */
	return flow;
}

/* The queue pair that a packet to be sent belongs to gets a slot of those that are paced; FLOWS if none is left. */
static __always_inline __u32 new_slot(struct flow_key *key, struct port_state *state, __u32 class)
{
	__u32 slot = state->flows;
	struct flow *flow;

	if (slot >= FLOWS) {
		state->flows_unpaced++;
		return FLOWS;
	}
	flow = flow_of(key->port, slot);
	if (!flow)
		return FLOWS;
	state->flows++;
	__builtin_memcpy(flow->address, key->address, 16);
	flow->qpn = key->qpn;
	flow->class = class;
	flow->rate = flow->target = 0;
	bpf_map_update_elem(&slots, key, &slot, 0);
	return slot;
}

static __always_inline void name_flow(const struct roce *data, __u32 number)
{
	struct flow_name name = { .qpn = data->qpn };

	__builtin_memcpy(name.source, data->source, 16);
	__builtin_memcpy(name.target, data->target, 16);
	bpf_map_update_elem(&flow_numbers, &name, &number, 0);
}
/* Its slot; FLOWS for what is not paced. */
GLOBAL int slot_of(struct __sk_buff *ctx, __u32 port, struct port_config *config, struct port_state *state, __u32 class)
{
	struct roce data = {};
	struct flow_key key = { .port = port };
	struct flow *flow;
	__u32 slot;

	if (!state || !config || !read_roce(ctx, &data))
		return FLOWS;
	if (data.opcode == OP_ACK || data.opcode == OP_ATOMIC_ACK || data.opcode == OP_CNP)
		return FLOWS;
	__builtin_memcpy(key.address, data.target, 16);
	key.qpn = data.qpn;
	if (!find_flow(&key, &slot))
		slot = new_slot(&key, state, class);
	flow = slot < FLOWS ? flow_of(port, slot) : (void *)0;
	if (!flow)
		return FLOWS;
	if (config->algorithm == HPCC) {
		if (!flow->limited) /* it begins, or did something else before */
			name_flow(&data, port * FLOWS + slot + 1);
		ctx->cb[3] = port * FLOWS + slot + 1;
		ctx->cb[4] = data.psn;
	}
	on_packet(config, flow, data.psn, data.asks);
	return slot;
}

/* The queue pair of this NIC that a packet which came in is for, as a sender. */
static __always_inline struct flow *flow_to(__u32 port, struct roce *data, __u32 *slot)
{
	struct flow_key key = { .port = port };
	struct peer *peer = peer_of(data->target, data->qpn);

	if (!peer)
		return (void *)0;
	__builtin_memcpy(key.address, data->source, 16);
	key.qpn = peer->qpn;
	return find_flow(&key, slot);
}

/* A NIC that is slow to take in what comes stops its peer when too much waits: its qdisc lets it go on. */
static __always_inline void take_in(struct __sk_buff *ctx, struct port_config *config, struct port_state *state)
{
	__u32 class = classify(ctx, config);
	__u64 now = bpf_ktime_get_ns(), bit = 1ULL << class;

	if (!(config->sends_pause & bit))
		return;
	if (state->taken_in_at < now)
		state->taken_in_at = now;
	state->taken_in_at += ctx->len * config->receive_ns_per_kib >> 10;
	if (state->stopped & bit || state->taken_in_at - now <= config->receive_stop * config->receive_ns_per_kib >> 10)
		return;
	state->stopped |= bit;
	stop_peer(ctx, config, state, class);
}

static __always_inline void answer_mark(struct __sk_buff *ctx, __u32 port, struct port_config *config,
					struct port_state *state, struct control *control, struct roce *data, __u64 now)
{
	struct flow_key key = { .port = port };
	__u64 *last;

	state->ce_packets++;
	if (!config->notifies)
		return;
	if (control->dcqcn.cnp_per != PER_PORT)
		__builtin_memcpy(key.address, data->source, 16);
	if (control->dcqcn.cnp_per == PER_QP)
		key.qpn = data->qpn;
	last = bpf_map_lookup_elem(&notified, &key);
	if ((last && now - *last < control->dcqcn.cnp_ns) || !peer_of(data->target, data->qpn))
		return;
	bpf_map_update_elem(&notified, &key, &now, 0);
	state->cnp_sent++;
	send_made(ctx, ctx->ifindex, MAKE_CNP, config->cnp_class);
}

/* RoCE that comes in at a NIC. */
GLOBAL int receive(struct __sk_buff *ctx, __u32 port, struct port_config *config)
{
	struct port_state *state = state_of(port);
	struct control *control = control_of(port);
	struct roce data = {};
	struct flow *flow;
	__u32 slot = 0;
	__u64 now;

	if (!config || !state || !control)
		return NEXT;
	if (config->receive_ns_per_kib)
		take_in(ctx, config, state);
	if (!read_roce(ctx, &data))
		return NEXT;
	now = bpf_ktime_get_ns();
	if (data.opcode == OP_ECHO) {
		flow = flow_to(port, &data, &slot);
		if (flow && config->algorithm == HPCC)
			take_echo(ctx, port, config, control, flow, slot, data.psn, now);
		return SHOT;
	}
	if (data.opcode == OP_CNP) {
		flow = flow_to(port, &data, &slot);
		if (flow && on_cnp(config, control, flow, now))
			state->cnp_handled++;
		else
			state->cnp_ignored++;
		return SHOT;
	}
	if (config->algorithm == TIMELY && data.opcode == OP_ACK && !(data.syndrome >> 5)) {
		flow = flow_to(port, &data, &slot);
		if (flow)
			on_ack(config, control, flow, data.psn, now);
	}
	if (data.ecn == ECN_CE)
		answer_mark(ctx, port, config, state, control, &data, now);
	if (config->telemetry && is_data(&data) && flow_number(&data) && peer_of(data.target, data.qpn))
		send_made(ctx, ctx->ifindex, MAKE_ECHO, config->cnp_class);
	return config->sorter ? sort(ctx, port, config, &data) : NEXT;
}
#endif
