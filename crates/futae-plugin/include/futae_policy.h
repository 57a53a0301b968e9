/* A replacement policy for futae's simulator, as a shared library.
 *
 *     cc -O2 -shared -fPIC -o libmine.so mine.c
 *     futae sim trace.csv --policy lru,./libmine.so --sizes 10%
 *
 * A library exports one function, futae_policy. The simulator owns residency: it knows which block is in which
 * slot, calls insert only for a slot that is not in use, and hit and remove only for one that is. The policy owns
 * order: it names the slot that is given up next. A slot is a number from 0 to slots - 1, so plain arrays over
 * slots do.
 *
 * The simulator checks every answer. A wrong one ends the simulation with an error that names the library. Nothing
 * can check what a library does to the memory of the process.
 *
 * The simulator calls the functions of a state in the order in which it decides, foresee apart. It may call those
 * that have no answer (insert, hit, remove) later than it decides, and several of them in a row; when it calls miss,
 * victim or destroy, it has called all that belong before. After a wrong answer it calls only destroy.
 *
 * Each state is used by one thread at a time. Several states are used by several threads at once, so a library
 * keeps nothing in variables that all states share. Results are the same on every run if the policy has no other
 * source of randomness than the seed.
 */
#ifndef FUTAE_POLICY_H
#define FUTAE_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It changes when a field changes its meaning; new fields come at the end of
 * struct futae_policy, which says its size. */
#define FUTAE_POLICY_VERSION UINT32_C(1)

/* What victim answers to keep all blocks and decline the new one. */
#define FUTAE_NO_SLOT UINT32_MAX

/* Why a block comes. */
enum futae_kind {
    FUTAE_READ = 0,     /* it is read */
    FUTAE_WRITE = 1,    /* it is written */
    FUTAE_DEMOTION = 2, /* the level above evicted it and sends its data */
    FUTAE_NOTICE = 3,   /* the level above evicted it and only says so */
    FUTAE_PRELOAD = 4   /* it is loaded ahead of any request */
};

/* Why a block leaves. */
enum futae_departure {
    FUTAE_EVICTED = 0,    /* victim named its slot */
    FUTAE_PROMOTED = 1,   /* the level above has taken it over */
    FUTAE_INVALIDATED = 2 /* it is gone, or no longer true */
};

/* What a state is made for. Valid during create only. */
struct futae_setup {
    uint32_t slots;            /* slots of the level, at least 1 */
    uint64_t seed;             /* all randomness comes from it */
    uint32_t arguments;        /* ./libmine.so(depth=2,fast=no) has two */
    const char *const *keys;   /* their names: depth, fast */
    const char *const *values; /* their values: 2, no */
};

/* A block is a number: that of its volume in the upper 16 bits, that on its volume in the lower 48. Functions
 * marked optional may be NULL. */
struct futae_policy {
    uint32_t version; /* FUTAE_POLICY_VERSION */
    uint32_t size;    /* sizeof(struct futae_policy) */

    /* A new state, or NULL if an argument is unknown or wrong, or memory is short. For each level it is first called
     * with 16 slots, and that state is freed, to check the arguments. The reason, as text that ends
     * with a zero byte, goes into problem, which has room for problem_size bytes. */
    void *(*create)(const struct futae_setup *setup, char *problem, size_t problem_size);
    /* Frees a state. */
    void (*destroy)(void *state);

    /* Optional. A block that is not resident is asked for: 1 admits it, 0 serves it and keeps nothing. Called
     * before victim. Without it every block is admitted. */
    int (*miss)(void *state, uint64_t block, uint32_t kind);
    /* The block was placed in slot. */
    void (*insert)(void *state, uint32_t slot, uint64_t block, uint32_t kind);
    /* The resident block in slot was asked for, or was demoted again. */
    void (*hit)(void *state, uint32_t slot, uint64_t block, uint32_t kind);
    /* The slot to give up for block, which must be in use, or FUTAE_NO_SLOT. Called only while some slot is in
     * use. If the block is given up, remove follows. */
    uint32_t (*victim)(void *state, uint64_t block, uint32_t kind);
    /* The block in slot leaves. why is an enum futae_departure. */
    void (*remove)(void *state, uint32_t slot, uint32_t why);

    /* Optional. The slot that would be the victim after `ahead` others, or FUTAE_NO_SLOT. The simulator reads ahead
     * what it knows of that slot, which makes it faster; no decision depends on the answer, and it need not be
     * right. Calls that belong before may come after it. */
    uint32_t (*foresee)(const void *state, uint32_t ahead);
};

/* The one function that a library exports. What it returns stays valid and unchanged. */
const struct futae_policy *futae_policy(void);

#ifdef __cplusplus
}
#endif

#endif
