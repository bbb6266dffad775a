/* The qdisc of a sorter, the ifb device of a NIC that puts packets in order: those that are due leave first, then those that
 * waited for them. */
#ifndef SORTER_H
#define SORTER_H
#include "watchdog.h"

/* The number of the first packet that a sequence holds; 0 for none. */
static __always_inline __u64 first_held(struct tree *tree)
{
	struct bpf_rb_node *node;
	__u64 number = 0;

	bpf_spin_lock(&tree->lock);
	node = bpf_rbtree_first(&tree->root);
	if (node)
		number = container_of(node, struct held_packet, node)->number;
	bpf_spin_unlock(&tree->lock);
	return number;
}
/* The sequence that has a packet to deliver, -1 for none; `flow_next` has the time at which one gives up. */
GLOBAL int next_held(struct port_config *config, struct port_state *state, __u64 now)
{
	struct port_state *nic;
	__u64 next = 0;
	__u32 slot;
	int found = -1;

	if (!config || !state)
		return -1;
	nic = state_of(config->owner);
	if (!nic)
		return -1;
	bpf_for(slot, 0, SEQUENCES)
	{
		struct sequence *sequence;
		struct tree *tree;
		__u64 first, bit = 1ULL << slot;

		if (slot >= nic->sequences)
			break;
		sequence = sequence_of(config->owner, slot);
		tree = tree_of(config->owner, slot);
		if (!sequence || !tree || !sequence->held)
			continue;
		if (!sequence->gives_up && sequence->hole_at + config->hold_ns <= now) {
			sequence->gives_up = 1;
			state->gave_up++;
		}
		if (!sequence->gives_up)
			next = sooner(next, sequence->hole_at + config->hold_ns);
		if (!sequence->gives_up && !(state->draining & bit))
			continue;
		first = first_held(tree);
		if (first && (sequence->gives_up || first <= sequence->want)) {
			found = slot;
			break;
		}
		state->draining &= ~bit;
	}
	state->flow_next = next;
	return found;
}
/* Takes it out. `refused`: rxe would drop it without a word. */
static __always_inline struct held_packet *pop_held(const struct port_config *config, struct port_state *state, int slot,
						    __u64 now, int *refused)
{
	struct sequence *sequence = sequence_of(config->owner, slot);
	struct tree *tree = tree_of(config->owner, slot);
	struct held_packet *held;
	struct bpf_rb_node *node;

	if (!sequence || !tree)
		return (void *)0;
	bpf_spin_lock(&tree->lock);
	node = bpf_rbtree_first(&tree->root);
	if (!node) {
		bpf_spin_unlock(&tree->lock);
		return (void *)0;
	}
	node = bpf_rbtree_remove(&tree->root, node);
	bpf_spin_unlock(&tree->lock);
	if (!node)
		return (void *)0;
	held = container_of(node, struct held_packet, node);
	*refused = sequence->refused && held->number > sequence->want;
	if (!*refused && held->number >= sequence->want) {
		sequence->want = held->number;
		advance(sequence, held->advance);
	}
	sequence->held--;
	sequence->held_bytes -= held->length;
	sequence->hole_at = now;
	if (!sequence->held)
		sequence->gives_up = 0;
	state->held--;
	state->packets--;
	state->bytes -= held->length;
	return held;
}

SEC("struct_ops/enqueue_sorted")
int BPF_PROG(enqueue_sorted, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct qdisc_cb *cb = (struct qdisc_cb *)skb->cb;
	__u32 port = port_of_qdisc(sch), length = skb->len, slot = cb->cb[2] & (SEQUENCES - 1), by = cb->cb[1], ahead;
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);
	struct list *list = list_of(port, 0);
	struct held_packet *held;
	struct sequence *sequence;
	struct packet *packet;
	struct tree *tree;

	if (!state || !config || !list || PORT_OF(skb->tc_index) == MAKE_WAKE)
		goto drop;
	sequence = sequence_of(config->owner, slot);
	tree = tree_of(config->owner, slot);
	if (!sequence || !tree)
		goto drop;
	ahead = AHEAD(cb->cb[0], sequence->want);
	if (!sequence->known || !ahead || ahead >= BEHIND) {
		packet = bpf_obj_new_impl(bpf_core_type_id_local(struct packet), (void *)0);
		if (!packet)
			goto no_memory;
		packet->length = length;
		skb = bpf_kptr_xchg(&packet->skb, skb);
		if (skb)
			bpf_qdisc_skb_drop(skb, to_free);
		push_back(list, packet);
		if (sequence->known && !ahead) {
			advance(sequence, by);
			sequence->refused = 0;
		}
		if (sequence->held)
			state->draining |= 1ULL << slot;
		goto kept;
	}
	held = bpf_obj_new_impl(bpf_core_type_id_local(struct held_packet), (void *)0);
	if (!held)
		goto no_memory;
	held->number = sequence->want + ahead;
	held->advance = by;
	held->length = length;
	skb = bpf_kptr_xchg(&held->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	bpf_spin_lock(&tree->lock);
	bpf_rbtree_add_impl(&tree->root, &held->node, comes_before, (void *)0, 0);
	bpf_spin_unlock(&tree->lock);
	if (!sequence->held)
		sequence->hole_at = bpf_ktime_get_ns();
	sequence->held++;
	sequence->held_bytes += length;
	state->reordered++;
	state->held++;
	state->most_held = MAX(state->most_held, state->held);
	if (sequence->held > config->hold_packets || sequence->held_bytes > config->hold_bytes) {
		sequence->gives_up = 1;
		state->overflowed++;
		state->draining |= 1ULL << slot;
	}
kept:
	state->packets++;
	state->bytes += length;
	show_length(sch, state);
	return NET_XMIT_SUCCESS;
no_memory:
	state->no_memory++;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/dequeue_sorted")
struct sk_buff *BPF_PROG(dequeue_sorted, struct Qdisc *sch)
{
	__u32 port = port_of_qdisc(sch);
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);
	struct list *list = list_of(port, 0);
	__u64 now = bpf_ktime_get_ns();
	struct sk_buff *skb = (void *)0;
	struct held_packet *held;
	struct packet *packet;
	int i, slot, refused;

	if (!config || !state || !list)
		return (void *)0;
	packet = pop_front(list);
	if (packet) {
		state->packets--;
		state->bytes -= packet->length;
		skb = bpf_kptr_xchg(&packet->skb, skb);
		discard(packet);
		goto out;
	}
	bpf_for(i, 0, STALE)
	{
		slot = next_held(config, state, now);
		if (slot < 0)
			break;
		held = pop_held(config, state, slot, now, &refused);
		if (!held)
			break;
		if (!refused) {
			skb = bpf_kptr_xchg(&held->skb, skb);
			bpf_obj_drop_impl(held, (void *)0);
			break;
		}
		state->discarded++;
		bpf_obj_drop_impl(held, (void *)0);
	}
	if (!skb && state->flow_next)
		bpf_qdisc_watchdog_schedule(sch, state->flow_next, 0);
out:
	show_length(sch, state);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

static __always_inline void empty_tree(struct tree *tree)
{
	struct bpf_rb_node *node;
	int i;

	if (!tree)
		return;
	bpf_for(i, 0, STALE)
	{
		bpf_spin_lock(&tree->lock);
		node = bpf_rbtree_first(&tree->root);
		if (!node) {
			bpf_spin_unlock(&tree->lock);
			break;
		}
		node = bpf_rbtree_remove(&tree->root, node);
		bpf_spin_unlock(&tree->lock);
		if (!node)
			break;
		bpf_obj_drop_impl(container_of(node, struct held_packet, node), (void *)0);
	}
}
SEC("struct_ops/reset_sorted")
void BPF_PROG(reset_sorted, struct Qdisc *sch)
{
	__u32 port = port_of_qdisc(sch), i;
	struct port_config *config = config_of(port);

	empty(list_of(port, 0));
	if (config) {
		bpf_for(i, 0, SEQUENCES)
			empty_tree(tree_of(config->owner, i));
	}
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}
SEC(".struct_ops")
struct Qdisc_ops sorter = {
	.enqueue = (void *)enqueue_sorted,
	.dequeue = (void *)dequeue_sorted,
	.init = (void *)init,
	.reset = (void *)reset_sorted,
	.destroy = (void *)destroy,
	.id = "sorter",
};
#endif
