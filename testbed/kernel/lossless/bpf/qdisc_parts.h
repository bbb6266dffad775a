/* What the qdiscs of ports and of sorters have in common. */
#ifndef QDISC_PARTS_H
#define QDISC_PARTS_H
#include "maps.h"

#define STALE 65536 /* packets that are dropped at once, at most */

static __always_inline __u64 sooner(__u64 at, __u64 other)
{
	return !at || other < at ? other : at;
}
static __always_inline __u32 port_of_qdisc(struct Qdisc *sch)
{
	return sch->handle >> 16;
}
/* The kernel asks a qdisc for packets only while it has some: `tc -s` shows those on the wire, too. */
static __always_inline void show_length(struct Qdisc *sch, const struct port_state *state)
{
	sch->q.qlen = state->packets;
	sch->qstats.backlog = state->bytes;
}

static __always_inline void empty(struct list *list)
{
	struct packet *packet;
	int i;

	if (!list)
		return;
	bpf_for(i, 0, STALE)
	{
		packet = pop_front(list);
		if (!packet)
			break;
		discard(packet);
	}
}
SEC("struct_ops/init")
int BPF_PROG(init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	return 0;
}
SEC("struct_ops/destroy")
void BPF_PROG(destroy, struct Qdisc *sch)
{
}
#endif
