//! Traits of policies: what the rest of the system must know about a policy to run it. The registry
//! states them beside the policy's name, so that no other code compares names.

/// A property of a policy that its users depend on.
///
/// A policy that contains another one has the inner policy's traits, too: the inner policy orders
/// the blocks by the same rules, and has the same requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// Decides by [`Access::next_use`](crate::Access::next_use), so it cannot run live.
    NeedsFuture,
    /// Fills from the evictions of the upper level: it needs demotions or notices.
    LivesOnDemotions,
    /// Uses the evictions of the upper level, but works without them.
    TakesDemotions,
    /// Has the parameter `keep_served`, with which it serves upper levels that demote nothing.
    KeepsServed,
    /// Counts requests as the application makes them. Requests that the kernel has split must be
    /// joined before they are counted.
    CountsRequests,
    /// Keeps blocks chosen by number, so it serves a single volume.
    ChoosesByNumber,
    /// Loads blocks that were not requested, so it must know the volume's size.
    NeedsVolumeSize,
    /// As [`NeedsVolumeSize`](Self::NeedsVolumeSize), but only with the parameter `prefill=true`.
    MayPrefill,
    /// Weighs blocks by classes of stores, which its parameter `classes` names.
    WeighsClasses,
    /// A candidate of the policy that chooses among others.
    Candidate,
    /// The candidate that this policy rehearses with all slots from the start, since it differs
    /// most from the initial one.
    RehearsedFirst,
    /// A candidate that may be in force from the first eviction on, if it did better than the initial
    /// one on a smaller cache while the cache filled.
    Opens,
    /// A candidate also as the order of demoted blocks, inside the candidate that lives on
    /// demotions; in force as soon as the upper cache reports its evictions.
    FirstBelow,
    /// The same, but in force once the upper cache has evicted as many blocks as fit, if it asked for hardly any of them again.
    BelowOneTimers,
    /// Compared by default in advice for a host's cache.
    Advised,
    /// Decides the same in whatever order the hits between two misses are reported, and whenever
    /// they are reported.
    TakesMarks,
    /// Counts the hits of its last accesses. The order of hits that are reported together matters
    /// only while some of them are older than its window.
    TakesCounts,
    /// Does not use the number of slots, so blocks may differ in size, and any number of them may
    /// be resident.
    AnySize,
    /// Directs the level below. Its parameter `below` is that level's number of slots.
    Directs,
    /// Models a kernel that reads ahead, if its parameter `readahead` is above 0.
    MayReadAhead,
    /// Keeps blocks of protected files; its parameter `max_protected` bounds how many.
    Protects,
    /// Uses `LogQueues<2>`. A place there needs one bit for the queue, so a level has at most 2^31 - 2 slots.
    TwoQueues,
    /// Uses `LogQueues` of three or four queues. A place there needs two bits for the queue, so a level has at most 2^30 - 2 slots.
    FourQueues,
}
