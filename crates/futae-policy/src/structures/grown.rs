//! Arrays over numbers that come roughly in their order.

/// More places than are asked for, since the next number will want one too.
const SPARE: usize = 1024;

/// The place `at`, which is made if there is none yet: it and all before it then hold `empty`.
#[inline]
pub fn grown<T: Copy>(values: &mut Vec<T>, at: usize, empty: T) -> &mut T {
    if at >= values.len() {
        grow(values, at, empty);
    }
    &mut values[at]
}

#[cold]
#[inline(never)]
fn grow<T: Copy>(values: &mut Vec<T>, at: usize, empty: T) {
    values.resize(at + SPARE, empty);
}
