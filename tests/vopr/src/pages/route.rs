//! How clients' requests reach the cache.

use crate::client::{Kind, Route};
use crate::sim::Inside;
use futae_engine::Operation;

impl Inside {
    /// How a request goes to the cache, and with which range; none if it does not go there (now).
    pub fn route(
        &mut self,
        kind: Kind,
        operation: Option<&Operation>,
        (volume, offset, length): (usize, u64, u64),
    ) -> Option<(Route, (u64, u64))> {
        let as_it_is = Some((Route::Direct, (offset, length)));
        if self.pages.is_none() {
            return as_it_is;
        }
        let is_direct = self.prng.below(8) == 0;
        match kind {
            Kind::Flush | Kind::Hint => as_it_is,
            Kind::Read if is_direct => as_it_is,
            Kind::Read => {
                let missing = self.read_pages(volume, offset, length)?;
                Some((Route::Fill, missing))
            }
            Kind::Write => {
                if !self.may_write(volume, offset, length) {
                    return None;
                }
                let route = match operation {
                    Some(_) => Route::Clear,
                    None if is_direct => Route::Direct,
                    None => Route::Through,
                };
                if route == Route::Direct {
                    self.drop_pages(volume, offset, length);
                }
                Some((route, (offset, length)))
            }
        }
    }
}
