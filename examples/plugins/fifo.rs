//! First in, first out, as a plug-in of futae's simulator, in Rust without any crate.
//!
//!     rustc --edition 2024 -O --crate-type cdylib -o libfifo.so examples/plugins/fifo.rs
//!     futae sim 'zipf(1.0):1GiB' --policy fifo,./libfifo.so --sizes 1%,10%
//!
//! The types are those of crates/futae-plugin/include/futae_policy.h. What is unsafe is in the module `glue`: a
//! policy of your own changes only what stands above it.

use std::collections::VecDeque;

/// Slots in the order in which they were filled.
#[derive(Default)]
struct Fifo {
    order: VecDeque<u32>,
}

impl Fifo {
    fn insert(&mut self, slot: u32, _block: u64) {
        self.order.push_back(slot);
    }

    fn hit(&mut self, _slot: u32, _block: u64) {}

    fn victim(&mut self, _block: u64) -> Option<u32> {
        self.order.front().copied()
    }

    fn remove(&mut self, slot: u32) {
        if self.order.front() == Some(&slot) {
            self.order.pop_front();
        } else {
            self.order.retain(|&other| other != slot);
        }
    }
}

/// Between the C interface and the policy.
mod glue {
    use super::Fifo;
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr::null_mut;

    const VERSION: u32 = 1;
    const NO_SLOT: u32 = u32::MAX;

    #[repr(C)]
    pub struct Setup {
        slots: u32,
        seed: u64,
        arguments: u32,
        keys: *const *const c_char,
        values: *const *const c_char,
    }

    #[repr(C)]
    pub struct Policy {
        version: u32,
        size: u32,
        create: extern "C" fn(*const Setup, *mut c_char, usize) -> *mut c_void,
        destroy: extern "C" fn(*mut c_void),
        miss: Option<extern "C" fn(*mut c_void, u64, u32) -> c_int>,
        insert: extern "C" fn(*mut c_void, u32, u64, u32),
        hit: extern "C" fn(*mut c_void, u32, u64, u32),
        victim: extern "C" fn(*mut c_void, u64, u32) -> u32,
        remove: extern "C" fn(*mut c_void, u32, u32),
        foresee: Option<extern "C" fn(*const c_void, u32) -> u32>,
    }

    /// The policy behind a state.
    fn of<'a>(state: *mut c_void) -> &'a mut Fifo {
        // SAFETY: every state comes from `create`, and the simulator uses it from one thread at a time, until
        // `destroy`.
        unsafe { &mut *state.cast() }
    }

    extern "C" fn create(setup: *const Setup, problem: *mut c_char, size: usize) -> *mut c_void {
        // SAFETY: the simulator has the setup live during the call.
        let setup = unsafe { &*setup };
        if setup.arguments > 0 {
            let text = b"takes no parameters\0";
            // SAFETY: there is room for `size` bytes.
            unsafe { problem.cast::<u8>().copy_from(text.as_ptr(), text.len().min(size)) };
            return null_mut();
        }
        Box::into_raw(Box::<Fifo>::default()).cast()
    }

    extern "C" fn destroy(state: *mut c_void) {
        // SAFETY: the state came from `create`, and is destroyed once.
        drop(unsafe { Box::from_raw(state.cast::<Fifo>()) });
    }

    extern "C" fn insert(state: *mut c_void, slot: u32, block: u64, _kind: u32) {
        of(state).insert(slot, block);
    }

    extern "C" fn hit(state: *mut c_void, slot: u32, block: u64, _kind: u32) {
        of(state).hit(slot, block);
    }

    extern "C" fn victim(state: *mut c_void, block: u64, _kind: u32) -> u32 {
        of(state).victim(block).unwrap_or(NO_SLOT)
    }

    extern "C" fn remove(state: *mut c_void, slot: u32, _why: u32) {
        of(state).remove(slot);
    }

    static POLICY: Policy = Policy {
        version: VERSION,
        size: size_of::<Policy>() as u32,
        create,
        destroy,
        miss: None,
        insert,
        hit,
        victim,
        remove,
        foresee: None,
    };

    // SAFETY: no other function of this name is in the library.
    #[unsafe(no_mangle)]
    pub extern "C" fn futae_policy() -> &'static Policy {
        &POLICY
    }
}
