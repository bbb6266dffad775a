/* The queues of a port as a qdisc: a queue a class, DWRR beside strict classes, the link's rate and its delay.
 *
 * A struct_ops program can neither send a frame nor wake another qdisc. So the port that stopped its peer has an XON frame in
 * stock, and looks by its own watchdog whether it may send that: when half of its excess can have drained. While nothing
 * moves it looks less often, and is some packets late at most when it does again. */
#ifndef QDISC_H
#define QDISC_H
#include "nic.h"
#include "sorter.h"

#define VLAN_TAG 4 /* bytes that the kernel keeps apart from the packet */
#define PACKET 1100 /* bytes */
#define LONGEST_GAP 8 /* packets */

static __always_inline __u64 link_ns(const struct port_config *config, __u64 bytes)
{
	return bytes * config->ns_per_kib >> 10;
}
static __always_inline void count_in(struct port_state *state, __u32 class, __u32 length)
{
	struct queue *queue = &state->queue[class & (CLASSES - 1)];

	state->packets++;
	state->bytes += length;
	queue->bytes += length;
	queue->packets++;
	queue->in_bytes += length;
	queue->in_packets++;
	if (queue->bytes > queue->max)
		queue->max = queue->bytes;
	state->waiting |= 1ULL << (class & (CLASSES - 1));
}
/* When to look again, while the switch of this port or the one at the other end sends packets that it held before; else 0. */
static __always_inline __u64 waits_for_switch(const struct port_config *config, __u64 now)
{
	struct pool *own = config->kind == SWITCH ? pool_of(config->owner) : (void *)0;
	struct pool *other = config->into ? pool_of(config->into - 1) : (void *)0;

	return (own && own->flushing) || (other && other->flushing) ? now + FLUSH_NS : 0;
}

SEC("struct_ops/enqueue")
int BPF_PROG(enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	__u32 port = port_of_qdisc(sch), tag = skb->tc_index, length = skb->len, class = CLASS_OF(tag), number = class;
	struct port_state *state = state_of(port);
	struct port_config *config = config_of(port);
	struct packet *packet;
	struct list *list;
	__u64 journey = 0;

	if (!state || !config || PORT_OF(tag) == MAKE_WAKE)
		goto drop;
	if (PORT_OF(tag) == MAKE_STOCK)
		number = STOCK + class;
	list = list_of(port, number);
	if (config->kind == NIC && tag & ~7 && PORT_OF(tag) < MADE) {
		struct flow *flow = flow_of(port, PORT_OF(tag) - 1);

		if (flow) {
			flow->queued_bytes += length;
			flow->queued_packets++;
			state->queue[class].flow_packets++;
			list = flow_list_of(port, PORT_OF(tag) - 1);
		}
	}
	if (!list)
		goto drop;
	if (config->telemetry) {
		struct qdisc_cb *cb = (struct qdisc_cb *)skb->cb;

		journey = JOURNEY(cb->cb[3], cb->cb[4]);
	}
	packet = bpf_obj_new_impl(bpf_core_type_id_local(struct packet), (void *)0);
	if (!packet) {
		state->no_memory++;
		uncharge(config, state, tag, length);
		goto drop;
	}
	packet->length = length;
	packet->tag = tag;
	packet->journey = journey;
	packet->on_link = MAX(length + (skb->vlan_all ? VLAN_TAG : 0) + LINK_OVERHEAD, LEAST_ON_LINK);
	skb = bpf_kptr_xchg(&packet->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	push_back(list, packet);
	if (PORT_OF(tag) == MAKE_STOCK) {
		state->group[class].stock++;
		return NET_XMIT_SUCCESS;
	}
	count_in(state, class, length);
	show_length(sch, state);
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* The XON frame that was made with the last XOFF goes out. A port that sends no pause frames has none. */
static __always_inline void send_resume(__u32 port, struct port_state *state, __u32 class)
{
	struct list *list = list_of(port, STOCK + class);
	struct packet *packet = list ? pop_front(list) : (void *)0;

	state->stopped &= ~(1ULL << class);
	if (!packet)
		return;
	state->group[class & (CLASSES - 1)].stock--;
	state->tx_resume[class & (CLASSES - 1)]++;
	list = list_of(port, CLASSES - 1);
	if (!list) {
		discard(packet);
		return;
	}
	count_in(state, CLASSES - 1, packet->length);
	push_back(list, packet);
}

/* The same of a NIC that is slow to take in what comes. */
GLOBAL __u64 resume_sender(__u32 port, struct port_config *config, struct port_state *state, __u64 now)
{
	__u64 go;
	__u32 class;

	if (!config || !state)
		return 0;
	go = state->taken_in_at - MIN(state->taken_in_at, config->receive_go * config->receive_ns_per_kib >> 10);
	if (go > now)
		return go;
	bpf_for(class, 0, CLASSES)
	{
		if (class >= CLASSES || !(state->stopped & ~state->holds & 1 << class))
			continue;
		send_resume(port, state, class);
	}
	return 0;
}

/* XON frames for the classes in which the peer may go on; when to look again at those in which it may not. */
GLOBAL __u64 resume_peer(__u32 port, struct port_config *config, struct port_state *state, __u64 now)
{
	struct pool *pool;
	struct bpf_spin_lock *lock;
	__u64 next = 0;
	__u32 class;

	if (!config || !state)
		return 0;
	pool = pool_of(config->owner);
	lock = pool_lock(config->owner);
	if (!pool || !lock)
		return 0;
	bpf_for(class, 0, CLASSES)
	{
		struct priority_group *group;
		__u64 excess, held;
		int resumes;

		if (class >= CLASSES || !(state->stopped & 1 << class))
			continue;
		group = &state->group[class];
		bpf_spin_lock(lock);
		resumes = may_resume(pool, &pool->class[class], group);
		held = group->shared + group->headroom;
		excess = threshold(pool, &pool->class[class]);
		bpf_spin_unlock(lock);
		if (resumes) {
			group->xoff = 0;
			group->look_at = group->look_gap = 0;
			send_resume(port, state, class);
			continue;
		}
		excess = held > excess ? held - excess : 0;
		if (group->look_at <= now) {
			if (group->looked_at != held)
				group->look_gap = 1;
			else if (group->look_gap < LONGEST_GAP)
				group->look_gap = group->look_gap ? group->look_gap << 1 : 1;
			group->looked_at = held;
			excess = MAX(excess >> 1, PACKET * group->look_gap);
			group->look_at = now + (config->ns_per_kib ? link_ns(config, excess) : excess * 80 >> 10);
		}
		next = sooner(next, group->look_at);
	}
	return next;
}

/* The next queue pair of a class whose time has come: its slot; FLOWS for what is not paced, -1 for none. */
GLOBAL int next_flow(__u32 port, struct port_state *state, struct hpcc *hpcc, __u32 class, __u64 now)
{
	__u64 first = 0;
	__u32 i, number;
	int found = -1;

	if (!state || class >= CLASSES)
		return -1;
	if (state->queue[class].packets > state->queue[class].flow_packets)
		return FLOWS;
	number = state->flows;
	bpf_for(i, 0, FLOWS)
	{
		__u32 slot;
		struct flow *flow;

		if (i >= number)
			break;
		slot = state->flow_turn + 1 + i;
		if (slot >= number)
			slot -= number;
		flow = flow_of(port, slot);
		if (!flow || !flow->queued_packets || flow->class != class)
			continue;
		if (flow->limited && flow->next_at > now) {
			first = sooner(first, flow->next_at);
			continue;
		}
		if (hpcc && flow->window) {
			__u64 opens = window_opens(flow, hpcc, now);

			if (opens) {
				first = sooner(first, opens);
				continue;
			}
		}
		found = slot;
		break;
	}
	state->flow_next = first;
	if (found >= 0)
		state->flow_turn = found;
	return found;
}

/* The class to serve of those in `ready`: strict ones first, the others by deficit (a queue may overdraw its own). */
GLOBAL int next_class(struct port_config *config, struct port_state *state, __u32 ready)
{
	__u32 class, strict;
	int i;

	if (!config || !state)
		return -1;
	strict = ready & (config->strict | 1 << (CLASSES - 1)); /* pause frames are in the last one */
	for (i = CLASSES - 1; i >= 0; i--)
		if (strict & 1 << i)
			return i;
	if (!(ready & (ready - 1))) { /* one alone needs no turns */
		for (i = 0; i < CLASSES; i++)
			if (ready & 1 << i)
				return i;
		return -1;
	}
	bpf_for(i, 0, 16 * CLASSES)
	{
		class = state->turn & (CLASSES - 1);
		if (ready & 1 << class && state->queue[class].deficit > 0)
			return class;
		state->turn = class = (class + 1) & (CLASSES - 1);
		if (ready & 1 << class)
			state->queue[class].deficit += config->quantum[class] ?: 1;
	}
	return state->turn & (CLASSES - 1);
}

/* What to send next: a class, and above its three bits a slot or FLOWS. -1 for nothing; `flow_next` has the time at which a
 * paced queue pair may send, if one waits for that. */
GLOBAL int choose(__u32 port, struct port_config *config, struct port_state *state, __u32 ready, __u64 now)
{
	struct control *control;
	struct hpcc *hpcc = (void *)0;
	__u64 next = 0;
	int i, class, slot;

	if (!config || !state)
		return -1;
	control = config->algorithm == HPCC ? control_of(port) : (void *)0;
	if (control)
		hpcc = &control->hpcc;
	state->flow_next = 0;
	for (i = 0; i < CLASSES && ready; i++) {
		class = next_class(config, state, ready);
		if (class < 0 || class >= CLASSES)
			break;
		if (!state->queue[class].flow_packets)
			return FLOWS << 3 | class;
		slot = next_flow(port, state, hpcc, class, now);
		if (slot >= 0)
			return slot << 3 | class;
		if (state->flow_next)
			next = sooner(next, state->flow_next);
		ready &= ~(1 << class);
	}
	state->flow_next = next;
	return -1;
}

SEC("struct_ops/dequeue")
struct sk_buff *BPF_PROG(dequeue, struct Qdisc *sch)
{
	__u32 port = port_of_qdisc(sch), ready, length;
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);
	struct sk_buff *skb = (void *)0;
	struct flow *flow = (void *)0;
	struct packet *packet;
	struct queue *queue;
	struct list *list;
	__u64 now = bpf_ktime_get_ns(), next = 0, start;
	int class, slot, i;

	if (!config || !state)
		return (void *)0;
	next = waits_for_switch(config, now);
	if (next)
		goto wait;
	if (state->on_wire) {
		list = list_of(port, WIRE);
		packet = list ? pop_front(list) : (void *)0;
		if (!packet)
			return (void *)0;
		if (packet->due <= now) {
			state->on_wire--;
			goto deliver;
		}
		next = packet->due;
		push_front(list, packet);
	}
	if (state->stopped) {
		start = config->kind == SWITCH ? resume_peer(port, config, state, now) :
						 resume_sender(port, config, state, now);
		if (start)
			next = sooner(next, start);
	}
	if (state->link_free > now) {
		if (state->waiting)
			next = sooner(next, state->link_free);
		goto wait;
	}
	if (state->paused)
		expire_pauses(state, now);
	if (config->watchdog_detect_ns && (state->paused || state->storming)) {
		start = watch(port, config, state, now);
		if (start)
			next = sooner(next, start);
	}
	ready = state->waiting & ~state->paused;
	slot = choose(port, config, state, ready, now);
	if (state->flow_next)
		next = sooner(next, state->flow_next);
	if (slot < 0) {
		state->busy = 0;
		if (state->paused & state->waiting) {
			for (i = 0; i < CLASSES; i++)
				if (state->paused & state->waiting & 1 << i)
					next = sooner(next, state->queue[i].pause_until);
		}
		goto wait;
	}
	class = slot & (CLASSES - 1);
	slot >>= 3;
	list = list_of(port, class);
	if (slot < FLOWS) {
		flow = flow_of(port, slot);
		list = flow_list_of(port, slot);
	}
	packet = list ? pop_front(list) : (void *)0;
	if (!packet)
		goto wait;
	length = packet->length;
	queue = &state->queue[class];
	if (flow) {
		struct control *control = control_of(port);

		flow->queued_bytes -= length;
		flow->queued_packets--;
		queue->flow_packets--;
		if (control)
			on_send(config, control, flow, length, now);
		if (packet->journey >> 32)
			begin_journey(flow, packet->journey);
	}
	count_out(state, class, length);
	if (queue->packets)
		queue->deficit -= length;
	else
		queue->deficit = 0;
	queue->sent_bytes += length;
	queue->sent_packets++;
	queue->sent_at = now;
	if (state->storming & 1 << class)
		queue->storm_sent++;
	uncharge(config, state, packet->tag, length);
	if (packet->journey >> 32 && config->kind == SWITCH)
		note_hop(config, state, port, packet->journey, queue->bytes, now);
	state->link_bytes += packet->on_link;
	if (!config->ns_per_kib && !config->delay_ns)
		goto deliver;
	start = state->busy ? state->link_free : now;
	state->busy = 1;
	state->link_free = start + link_ns(config, packet->on_link);
	packet->due = state->link_free + config->delay_ns;
	next = sooner(next, packet->due);
	next = sooner(next, state->link_free);
	list = list_of(port, WIRE);
	if (!list) {
		discard(packet);
		return (void *)0;
	}
	push_back(list, packet);
	state->on_wire++;
wait:
	if (next)
		bpf_qdisc_watchdog_schedule(sch, next, 0);
	return (void *)0;
deliver:
	length = packet->length;
	state->packets--;
	state->bytes -= length;
	skb = bpf_kptr_xchg(&packet->skb, skb);
	discard(packet);
	if (!skb)
		return (void *)0;
	show_length(sch, state);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* The port goes down: what waits in it is gone, and the buffer has its room back. */
SEC("struct_ops/reset")
void BPF_PROG(reset, struct Qdisc *sch)
{
	__u32 port = port_of_qdisc(sch), i, flows = 0;
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);

	if (config && state) {
		flows = state->flows;
		bpf_for(i, 0, CLASSES)
			flush(port, config, state, i);
	}
	bpf_for(i, 0, PORT_LISTS)
		empty(list_of(port, i));
	bpf_for(i, 0, flows)
	{
		struct flow *flow = flow_of(port, i);

		empty(flow_list_of(port, i));
		if (flow)
			flow->queued_bytes = flow->queued_packets = 0;
	}
	if (state) {
		bpf_for(i, 0, CLASSES)
		{
			struct queue *queue = &state->queue[i & (CLASSES - 1)];

			queue->flushed_packets += queue->packets;
			queue->bytes = queue->packets = queue->flow_packets = 0;
		}
		state->packets = state->bytes = state->on_wire = state->waiting = 0;
		state->busy = state->link_free = 0;
	}
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}
SEC(".struct_ops")
struct Qdisc_ops lossless = {
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
	.id = "lossless",
};
#endif
