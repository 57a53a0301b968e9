//! Arrays over numbers that arrive roughly in ascending order.

/// Extra elements allocated, since the next number will need one, too.
const SPARE: usize = 1024;

/// The element at `at`. If it does not exist, it and all missing ones before it are created with
/// `empty`.
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
