//! Doubts about the interpretation of a trace, each with the option that settles it.

/// A reason to doubt the interpretation of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// Addresses and lengths of a DiskSim trace are all multiples of a sector's bytes.
    #[error(
        "every address and length is a multiple of 512, so they may be bytes, yet DiskSim's are sectors of 512 bytes; \
         if they are bytes, add --columns separator=blank,time=0:{time},volume=1,offset=2,length=3,kind=4:read1"
    )]
    SectorsMayBeBytes {
        /// The unit of the times, as a column map has it.
        time: &'static str,
    },
    /// A table without lengths, whose offsets are not those of blocks.
    #[error(
        "the records have no lengths, and blocks of {block_bytes} bytes merge offsets that differ; \
         if each offset names an object of its own, add --view start"
    )]
    OffsetsMayBeKeys {
        /// Bytes of a block.
        block_bytes: u64,
    },
    /// Two columns of a table that mean the same, of which the first is read.
    #[error(
        "the columns `{}` and `{}` mean the same, and only `{}` is read; give --columns to say which it is",
        .0[0], .0[1], .0[0]
    )]
    Rivals(Box<[String; 2]>),
    /// Records that no program writes as oracleGeneral.
    #[error(
        "most records are no oracleGeneral: their sizes or next requests are impossible; \
         check --format"
    )]
    NotOracle,
    /// The objects of the trace have sizes, which are not used.
    #[error(
        "the objects differ in size, and futae gives each one block, so the byte miss ratio is not known"
    )]
    SizesIgnored,
    /// The objects have sizes, and the trace cannot be kept, since it can be read only once.
    #[error(
        "the sizes of objects are not kept in one pass, so the byte miss ratio is not known; read the trace from a file"
    )]
    SizesNotKept,
    /// More volumes than can be numbered.
    #[error(
        "the trace has more than 65536 volumes; those from the 65536th on are counted as one volume, on which each has 16 TiB of its own"
    )]
    VolumesFolded,
    /// Requests with times before those of earlier ones, in a run that uses times.
    #[error(
        "{requests} requests have times before that of an earlier request, and count as simultaneous with it; \
         sort the trace by time, or do without windows, a warm-up by time, latencies and an order by time"
    )]
    TimesBack {
        /// How many.
        requests: u64,
    },
    /// Traces of several guests were recorded at different times.
    #[error(
        "the traces were recorded at different times, so each counts from its first request; `futae sim --order recorded` takes \
         the times as they are"
    )]
    TimesApart,
    /// One of several guests' traces has no times.
    #[error(
        "not every trace has times, so the guests take turns request by request, however often each asks in truth; \
         `futae sim --order turns` says that this is meant"
    )]
    TimesMissing,
}

impl Doubt {
    /// Whether choosing a view settles it.
    #[must_use]
    pub fn is_about_view(&self) -> bool {
        matches!(self, Self::OffsetsMayBeKeys { .. })
    }
}
