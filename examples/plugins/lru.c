/* Least recently used, as a plug-in of futae's simulator.
 *
 *     cc -O2 -shared -fPIC -I crates/futae-plugin/include -o liblru.so examples/plugins/lru.c
 *     futae sim 'zipf(1.0):1GiB' --policy lru,./liblru.so --sizes 1%,10%
 */
#include "futae_policy.h"

#include <stdio.h>
#include <stdlib.h>

struct link {
    uint32_t older, newer;
};

/* A ring of slots from least to most recent. links[slots] is where it begins and ends. */
struct lru {
    uint32_t slots;
    struct link links[];
};

static void *create(const struct futae_setup *setup, char *problem, size_t problem_size)
{
    if (setup->arguments > 0) {
        snprintf(problem, problem_size, "has no parameter %s: it has none", setup->keys[0]);
        return NULL;
    }
    struct lru *lru = malloc(sizeof(*lru) + sizeof(struct link) * ((size_t)setup->slots + 1));
    if (lru == NULL) {
        snprintf(problem, problem_size, "no memory for %u slots", (unsigned)setup->slots);
        return NULL;
    }
    lru->slots = setup->slots;
    lru->links[setup->slots] = (struct link){setup->slots, setup->slots};
    return lru;
}

static inline void unlink_slot(struct lru *lru, uint32_t slot)
{
    struct link link = lru->links[slot];
    lru->links[link.older].newer = link.newer;
    lru->links[link.newer].older = link.older;
}

static inline void make_newest(struct lru *lru, uint32_t slot)
{
    uint32_t end = lru->slots, newest = lru->links[end].older;
    lru->links[slot] = (struct link){.older = newest, .newer = end};
    lru->links[newest].newer = slot;
    lru->links[end].older = slot;
}

static void insert(void *state, uint32_t slot, uint64_t block, uint32_t kind)
{
    (void)block, (void)kind;
    make_newest(state, slot);
}

static void hit(void *state, uint32_t slot, uint64_t block, uint32_t kind)
{
    (void)block, (void)kind;
    unlink_slot(state, slot);
    make_newest(state, slot);
}

static uint32_t victim(void *state, uint64_t block, uint32_t kind)
{
    const struct lru *lru = state;
    (void)block, (void)kind;
    return lru->links[lru->slots].newer;
}

static void remove_slot(void *state, uint32_t slot, uint32_t why)
{
    (void)why;
    unlink_slot(state, slot);
}

static const struct futae_policy lru = {
    .version = FUTAE_POLICY_VERSION,
    .size = sizeof(struct futae_policy),
    .create = create,
    .destroy = free,
    .insert = insert,
    .hit = hit,
    .victim = victim,
    .remove = remove_slot,
};

const struct futae_policy *futae_policy(void)
{
    return &lru;
}
