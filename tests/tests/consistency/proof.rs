//! The model itself: what it must not let pass.

use crate::model::{Outcome, Volume};
use crate::reports::Caller;
use crate::rules::FIRST_FLUSH_AFTER_LOSS_FAILS;
use crate::sector::{Label, SECTOR};

#[test]
fn stale_torn_and_lost_sectors_are_recognised() {
    const HORIZON: u64 = 0;
    let written = |version| {
        let mut bytes = [0; SECTOR];
        let writer = 7;
        let label = Label {
            volume: 0,
            writer,
            sector: 1,
            version,
        };
        label.fill(&mut bytes);
        bytes
    };
    let at = SECTOR as u64;
    let done = Outcome::Done { fua: false };
    let mut volume = Volume::new(0, 4096, true);
    for op in [10, 20] {
        volume.begin(op, op, at, SECTOR, 7, Some(&written(op)));
        volume.end(op, op + 5, at, SECTOR, done, HORIZON);
    }
    // A read that was issued while 20 was under way may have seen 10; a later one may not.
    assert!(volume.check(at, &written(10), 21, 30).is_ok());
    assert!(volume.check(at, &written(10), 26, 30).is_err());
    assert!(volume.check(at, &written(20), 26, 30).is_ok());
    let torn = [&written(20)[..256], &written(10)[256..]].concat();
    // While it is written to, a sector may be read half old and half new; never later, and with nothing else in it.
    assert!(volume.check(at, &torn, 21, 30).is_ok());
    let foreign = [&torn[..SECTOR - 1], &[torn[SECTOR - 1] ^ 1]].concat();
    assert!(volume.check(at, &foreign, 21, 30).is_err());
    assert!(volume.check(at, &torn, 26, 30).is_err());
    let [first, second, late] = [(1, 41), (2, 41), (3, 47)].map(|(connection, connected)| Caller {
        connection,
        connected,
    });
    // Nothing was flushed, so a kill may bring back any of them; but then a FLUSH must say so, once.
    volume.server_ended(40, true);
    assert!(volume.check(at, &written(10), 41, 42).is_ok());
    assert!(
        volume.check(at, &written(20), 43, 44).is_err(),
        "it was gone"
    );
    assert!(
        volume.flushed(45, first, false).is_ok(),
        "another one may have failed"
    );
    assert_eq!(
        volume.flushed(45, first, true).is_err(),
        FIRST_FLUSH_AFTER_LOSS_FAILS
    );
    assert!(volume.reported(45, 46, first, false).is_ok());
    assert!(volume.reported(47, 48, first, false).is_err());
    assert!(volume.flushed(49, first, true).is_ok());
    // A connection that was there is told, too, and one that came later is not.
    assert!(volume.flushed(49, second, true).is_err());
    assert!(volume.reported(49, 49, second, false).is_ok());
    assert!(volume.flushed(49, second, true).is_ok());
    assert!(volume.reported(49, 49, late, false).is_err());
    assert!(volume.flushed(49, late, true).is_ok());
    // A FLUSH that was under way when another one of its connection failed may fail; and a connection may be told in place of an
    // older one that went away, once.
    assert!(volume.reported(47, 49, second, false).is_ok());
    assert!(volume.reported(50, 50, late, false).is_err());
    volume.perhaps_reported(late.connected + 1);
    assert!(volume.reported(51, 51, second, false).is_err());
    let later = Caller {
        connection: 4,
        connected: 48,
    };
    assert!(volume.reported(51, 51, later, false).is_ok());
    assert!(volume.reported(52, 52, later, false).is_err());
    // What is flushed is there.
    volume.begin(50, 50, at, SECTOR, 7, Some(&written(50)));
    volume.end(50, 51, at, SECTOR, done, HORIZON);
    volume.keep(52);
    volume.server_ended(60, true);
    assert!(volume.check(at, &written(10), 61, 62).is_err());
    assert!(volume.check(at, &written(50), 61, 62).is_ok());
}
