/* The qdisc of a sorter: packets that are due first, then those that waited for them. */
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
#endif
