/* A policy whose decisions depend on every call before them and on their order. With MISS it declines blocks, too. */
#include "futae_policy.h"

#include <stdlib.h>

struct past {
    uint32_t slots;
    uint64_t sum;
    unsigned char used[];
};

static void *create(const struct futae_setup *setup, char *problem, size_t problem_size)
{
    (void)problem, (void)problem_size;
    struct past *past = calloc(1, sizeof(*past) + setup->slots);
    if (past != NULL)
        past->slots = setup->slots;
    return past;
}

static void note(struct past *past, uint64_t call, uint64_t slot, uint64_t block, uint64_t why)
{
    const uint64_t values[] = {call, slot, block, why};
    for (int at = 0; at < 4; at++) {
        past->sum = (past->sum ^ values[at]) * UINT64_C(0x9E3779B97F4A7C15);
        past->sum ^= past->sum >> 32;
    }
}

#ifdef MISS
static int miss(void *state, uint64_t block, uint32_t kind)
{
    struct past *past = state;
    note(past, 1, 0, block, kind);
    return past->sum % 8 != 0;
}
#endif

static void insert(void *state, uint32_t slot, uint64_t block, uint32_t kind)
{
    struct past *past = state;
    note(past, 2, slot, block, kind);
    past->used[slot] = 1;
}

static void hit(void *state, uint32_t slot, uint64_t block, uint32_t kind)
{
    note(state, 3, slot, block, kind);
}

static uint32_t victim(void *state, uint64_t block, uint32_t kind)
{
    struct past *past = state;
    note(past, 4, 0, block, kind);
    if (past->sum % 16 == 0)
        return FUTAE_NO_SLOT;
    uint32_t slot = past->sum % past->slots;
    while (!past->used[slot])
        slot = (slot + 1) % past->slots;
    return slot;
}

static void remove_slot(void *state, uint32_t slot, uint32_t why)
{
    struct past *past = state;
    note(past, 5, slot, 0, why);
    past->used[slot] = 0;
}

static const struct futae_policy policy = {
    .version = FUTAE_POLICY_VERSION,
    .size = sizeof(struct futae_policy),
    .create = create,
    .destroy = free,
#ifdef MISS
    .miss = miss,
#endif
    .insert = insert,
    .hit = hit,
    .victim = victim,
    .remove = remove_slot,
};

const struct futae_policy *futae_policy(void)
{
    return &policy;
}
