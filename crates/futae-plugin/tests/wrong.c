/* Plug-ins that are wrong in one way each: WRONG says which. */
#include "futae_policy.h"

static uint32_t slots;

static void *create(const struct futae_setup *setup, char *problem, size_t problem_size)
{
    (void)problem, (void)problem_size;
    slots = setup->slots;
#ifdef NO_STATE
    return NULL;
#endif
    return &slots;
}
static void destroy(void *state) { (void)state; }
static int miss(void *state, uint64_t block, uint32_t kind)
{
    (void)state, (void)block, (void)kind;
#ifdef ODD_MISS
    return 7;
#endif
    return 1;
}
static void insert(void *state, uint32_t slot, uint64_t block, uint32_t kind)
{
    (void)state, (void)slot, (void)block, (void)kind;
}
static uint32_t victim(void *state, uint64_t block, uint32_t kind)
{
    (void)state, (void)block, (void)kind;
#ifdef FREE_SLOT
    return 3; /* of four slots, of which one is filled: see the test */
#endif
    return slots + 5;
}
static void remove_slot(void *state, uint32_t slot, uint32_t why)
{
    (void)state, (void)slot, (void)why;
}

#ifndef VERSION
#define VERSION FUTAE_POLICY_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(struct futae_policy)
#endif
#ifdef NO_HIT
#define HIT NULL
#else
#define HIT insert
#endif

static const struct futae_policy policy = {
    .version = VERSION,
    .size = SIZE,
    .create = create,
    .destroy = destroy,
    .miss = miss,
    .insert = insert,
    .hit = HIT,
    .victim = victim,
    .remove = remove_slot,
};

#ifdef NO_ENTRY
const struct futae_policy *another_name(void)
#else
const struct futae_policy *futae_policy(void)
#endif
{
#ifdef NOTHING
    return NULL;
#endif
    return &policy;
}
