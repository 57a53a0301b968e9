//! An agent is heard once and in order, and cannot make the allocator keep more than it wants.

use futae_agent_protocol::receiver::SampleSink;
use futae_agent_protocol::{Counters, Frame, Memory, Message, Pressure, References, Sample};
use futae_allocate::OnlineCurve;
use futae_balance::config::AgentConfig;
use futae_balance::feed::{Feed, Inbox};
use futae_control::SocketError;

fn sample(accesses: u64, misses: u64) -> Message {
    Message::Sample(Sample {
        period_us: 1_000_000,
        total: Counters {
            accesses,
            misses,
            ..Counters::default()
        },
        memory: Memory {
            free: 1 << 20,
            cached: 2 << 20,
            buffers: 4 << 20,
            ..Memory::default()
        },
        pressure: Some(Pressure {
            some_us: 0,
            full_us: 250_000,
        }),
        ..Sample::default()
    })
}

fn frame(sequence: u64, message: Message) -> Frame {
    Frame { sequence, message }
}

/// An allocator that was killed leaves its socket behind.
#[test]
fn a_socket_that_nobody_listens_at_is_replaced_and_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent.sock");
    let listen = AgentConfig::Listen(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let feed = Feed::start(&listen).expect("the dead one is replaced");
    let second = Feed::start(&listen).expect_err("somebody listens");
    assert!(matches!(second, SocketError::InUse { .. }), "{second}");
    let agent = std::os::unix::net::UnixStream::connect(&path);
    drop(agent.expect("the first still listens"));
    drop(feed);
    assert!(!path.exists(), "gone with its feed");
    std::fs::write(&path, "not yours").expect("room");
    let error = Feed::start(&listen).expect_err("a file");
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert!(path.exists());
}

#[test]
fn samples_add_up() {
    let mut inbox = Inbox::default();
    inbox.take(&frame(1, sample(100, 10)));
    inbox.take(&frame(2, sample(50, 5)));
    let did = inbox.collect(None).expect("heard");
    assert_eq!((did.hits, did.misses, did.cache), (135, 15, Some(7 << 20)));
    assert_eq!(did.pressure, Some(0.25));
    assert_eq!(inbox.collect(None), None);
}

#[test]
fn huge_counts_do_not_overflow() {
    let mut inbox = Inbox::default();
    inbox.take(&frame(1, sample(u64::MAX, 0)));
    inbox.take(&frame(2, sample(u64::MAX, u64::MAX)));
    inbox.take(&frame(u64::MAX, sample(5, u64::MAX)));
    let did = inbox.collect(None).expect("heard");
    assert_eq!((did.hits, did.misses), (u64::MAX, u64::MAX));
}

#[test]
fn sampled_reads_make_the_curve() {
    let (mut inbox, mut curve) = (Inbox::default(), OnlineCurve::new(10_000, 1));
    for sequence in 1..20 {
        let pages = (0..1000).map(|page| page << 24).collect();
        let references = References {
            threshold: References::ALL,
            pages,
        };
        inbox.take(&frame(sequence, Message::References(references)));
    }
    inbox.collect(Some(&mut curve));
    curve.end_period();
    let ratios = curve.miss_ratios(&[900.0, 1100.0]);
    assert!(ratios[0] > 0.95 && ratios[1] < 0.1, "{ratios:?}");
    // A threshold that is no share is not the end.
    for threshold in [0, u32::MAX] {
        let pages = vec![1; 100];
        inbox.take(&frame(
            100,
            Message::References(References { threshold, pages }),
        ));
        inbox.collect(Some(&mut curve));
    }
}
