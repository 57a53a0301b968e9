//! Queues against the closed forms of queueing theory (Kleinrock, Queueing Systems I, 1975).

use super::*;

const MISS: Route = Route {
    guest: 0,
    depth: 1,
    is_write: false,
};

/// Requests to the store of one level that come at random, `rate` a second.
fn poisson(model: &str, rate: f64, count: u32) -> Latencies {
    let mut network = Network::new(model.parse().expect("a model"), 1, 1, None, 1);
    let mut prng = Prng::new(99);
    let gap = Service::Exponential(1.0 / rate);
    let mut now = 0;
    for at in 0..count {
        if at == count / 10 {
            network.begin_counting();
        }
        now += gap.draw_ns(&mut prng);
        let now = network.arrival(now);
        network.ask(now, MISS);
    }
    network.finish()
}

fn near(found: Option<f64>, wanted: f64, share: f64) {
    let found = found.expect("requests");
    assert!(
        (found / wanted - 1.0).abs() < share,
        "{found}, and {wanted} is right"
    );
}

#[test]
fn one_server_is_as_slow_as_theory_says() {
    // M/M/1: exponential with mean 1 / (µ - λ).
    let times = poisson("store=exp(1ms)*1", 700.0, 600_000);
    let mean = 1e-3 / 0.3;
    near(times.all.mean_seconds, mean, 0.03);
    near(times.all.p50_seconds, mean * 2f64.ln(), 0.03);
    near(times.all.p99_seconds, mean * 100f64.ln(), 0.05);
    let store = times.store.expect("it has a width");
    near(Some(store.utilisation), 0.7, 0.01);
    near(Some(store.mean_wait_seconds), mean - 1e-3, 0.04);
    // M/D/1 (Pollaczek and Khinchine): half of the wait.
    let times = poisson("store=1ms*1", 700.0, 600_000);
    near(times.all.mean_seconds, 1e-3 + 0.7e-3 / (2.0 * 0.3), 0.03);
    // Without a width nobody waits.
    let times = poisson("store=1ms", 700.0, 1000);
    assert_eq!((times.all.max_seconds, times.store), (Some(1e-3), None));
}

#[test]
fn several_servers_are_as_slow_as_theory_says() {
    // M/M/4 at 80 %: Erlang's C.
    let (servers, load) = (4u32, 3.2f64);
    let term = |n: u32| (1..=n).fold(1.0, |term, k| term * load / f64::from(k));
    let last = term(servers) / (1.0 - load / f64::from(servers));
    let waits = last / ((0..servers).map(term).sum::<f64>() + last);
    let mean_wait = waits * 1e-3 / (f64::from(servers) - load);
    let times = poisson("store=exp(1ms)*4", 3200.0, 800_000);
    near(times.all.mean_seconds, 1e-3 + mean_wait, 0.03);
    near(
        Some(times.store.expect("a width").mean_wait_seconds),
        mean_wait,
        0.06,
    );
}

#[test]
fn so_many_clients_have_so_many_requests_under_way() {
    // One after the other: nobody waits, and four at a time take a quarter of the time.
    for (clients, width, span) in [(1, 1, 1.0), (4, 4, 0.25), (4, 1, 1.0), (4, 8, 0.25)] {
        let model = format!("store=1ms*{width}").parse().expect("a model");
        let mut network = Network::new(model, 1, 1, Some(clients), 1);
        network.begin_counting();
        for _ in 0..1000 {
            let now = network.arrival(0);
            network.ask(now, MISS);
        }
        let times = network.finish();
        assert_eq!(
            times.span_seconds, span,
            "{clients} clients, {width} at a time"
        );
        let each = 1e-3 * f64::from(clients) / f64::from(width.min(clients));
        near(times.all.p50_seconds, each, 0.002);
    }
}

#[test]
fn clients_that_send_nothing_cost_no_memory() {
    let model = "store=1ms*2".parse().expect("a model");
    let mut network = Network::new(model, 1, 1, Some(u32::MAX), 1);
    network.begin_counting();
    for _ in 0..10 {
        assert_eq!(network.arrival(0), 0);
        network.ask(0, MISS);
    }
    let times = network.finish();
    assert_eq!((times.clients, times.span_seconds), (Some(u32::MAX), 5e-3));
}

#[test]
fn a_request_passes_its_links_and_then_its_place() {
    let model = "upper=1us,lower=10us,link=5us,store=100us,store-write=200us";
    let took = |depth, is_write| {
        let mut network = Network::new(model.parse().expect("a model"), 2, 3, None, 1);
        network.begin_counting();
        let now = network.arrival(7);
        network.ask(
            now,
            Route {
                guest: 1,
                depth,
                is_write,
            },
        );
        let times = network.finish();
        let (one, none) = if is_write {
            (times.writes, times.reads)
        } else {
            (times.reads, times.writes)
        };
        assert_eq!(
            (one.requests, none.requests, none.mean_seconds),
            (1, 0, None)
        );
        (one.max_seconds.expect("one") * 1e6).round() as u64
    };
    assert_eq!(
        [0, 1, 2, 3].map(|depth| took(depth, false)),
        [1, 15, 20, 110]
    );
    assert_eq!(took(3, true), 210);
}

#[test]
fn what_nobody_waits_for_delays_who_comes_behind() {
    let model: LatencyModel = "link=5us*1,store=100us*1".parse().expect("a model");
    let took = |before: &dyn Fn(&mut Network)| {
        let mut network = Network::new(model, 2, 2, None, 1);
        network.begin_counting();
        before(&mut network);
        network.ask(
            0,
            Route {
                guest: 0,
                depth: 2,
                is_write: false,
            },
        );
        let times = network.finish();
        assert_eq!(times.all.requests, 1);
        (times.all.max_seconds.expect("one") * 1e6).round() as u64
    };
    assert_eq!(took(&|_| {}), 105);
    assert_eq!(took(&|network| network.demote(0, 0, 0)), 110);
    assert_eq!(
        took(&|network| network.demote(0, 1, 0)),
        105,
        "another guest's link"
    );
    assert_eq!(took(&|network| network.use_store(0, false)), 200);
}

#[test]
fn work_at_the_end_of_time_ends_there() {
    for model in ["store=1s*1", "store=1s"] {
        let mut network = Network::new(model.parse().expect("a model"), 1, 1, None, 1);
        network.begin_counting();
        for now in [0, u64::MAX - 5, u64::MAX] {
            let now = network.arrival(now);
            network.ask(now, MISS);
        }
        assert_eq!(network.finish().all.requests, 3);
    }
}
