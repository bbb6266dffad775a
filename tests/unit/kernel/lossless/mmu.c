/* The arithmetic of the memory management unit for this machine's processor, as a library. */
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
#define __always_inline inline __attribute__((always_inline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#include "mmu.h"

int charge_to_group(struct pool *pool, int class, struct port_config *from, struct port_state *state, __u32 length)
{
	return charge_group(pool, &pool->class[class], from, state, class, length);
}
int charge_to_wait(struct pool *pool, int class, struct port_config *from, struct port_state *state, __u32 length)
{
	return charge_waiting(pool, &pool->class[class], from, state, class, length);
}
int charge_to_queue(struct pool *pool, int class, struct queue *queue, __u32 length)
{
	return charge_queue(pool, &pool->class[class], queue, length);
}
void release_group(struct pool *pool, struct priority_group *group, __u32 length)
{
	release(pool, &group->headroom, &group->shared, &group->reserve, length);
}
void release_queue(struct pool *pool, struct queue *queue, __u32 length)
{
	release(pool, (void *)0, &queue->shared, &queue->reserve, length);
}
int group_may_resume(struct pool *pool, int class, struct priority_group *group)
{
	return may_resume(pool, &pool->class[class], group);
}
