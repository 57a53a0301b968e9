//! The C interface of `include/futae_policy.h`, and safe calls through it.
//!
//! What a library answers is not believed here or anywhere. That its functions are what the header says, and leave
//! alone the memory that is not theirs, cannot be checked: to load a library is to run it.

#![expect(unsafe_code, reason = "foreign functions")]

use futae_policy::{AccessKind, BlockId, Call, Departure, Foreign, Slot};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

/// `FUTAE_POLICY_VERSION`.
pub const VERSION: u32 = 1;
/// The function that a library exports.
const ENTRY: &CStr = c"futae_policy";
/// Room for the reason why a state cannot be had, in bytes.
const PROBLEM_BYTES: usize = 512;
/// `FUTAE_NO_SLOT`.
const NO_SLOT: u32 = u32::MAX;

/// `struct futae_setup`.
#[repr(C)]
struct Setup {
    slots: u32,
    seed: u64,
    arguments: u32,
    keys: *const *const c_char,
    values: *const *const c_char,
}

type Entry = unsafe extern "C" fn() -> *const Declared;
type Create = unsafe extern "C" fn(*const Setup, *mut c_char, usize) -> *mut c_void;

/// `struct futae_policy`, whose functions may be absent.
#[repr(C)]
#[derive(Clone, Copy)]
struct Declared {
    version: u32,
    size: u32,
    create: Option<Create>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    miss: Option<unsafe extern "C" fn(*mut c_void, u64, u32) -> c_int>,
    insert: Option<unsafe extern "C" fn(*mut c_void, u32, u64, u32)>,
    hit: Option<unsafe extern "C" fn(*mut c_void, u32, u64, u32)>,
    victim: Option<unsafe extern "C" fn(*mut c_void, u64, u32) -> u32>,
    remove: Option<unsafe extern "C" fn(*mut c_void, u32, u32)>,
    foresee: Option<unsafe extern "C" fn(*const c_void, u32) -> u32>,
}

/// The functions of a library, those that must be there being there.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    create: Create,
    destroy: unsafe extern "C" fn(*mut c_void),
    miss: Option<unsafe extern "C" fn(*mut c_void, u64, u32) -> c_int>,
    insert: unsafe extern "C" fn(*mut c_void, u32, u64, u32),
    hit: unsafe extern "C" fn(*mut c_void, u32, u64, u32),
    victim: unsafe extern "C" fn(*mut c_void, u64, u32) -> u32,
    remove: unsafe extern "C" fn(*mut c_void, u32, u32),
    foresee: Option<unsafe extern "C" fn(*const c_void, u32) -> u32>,
}

/// Loads a library, which stays loaded until the process ends. The error says what is wrong with it.
pub fn load(path: &Path) -> Result<Functions, String> {
    // SAFETY: loading runs the library's initialisers. The user named the library in order to run it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| format!("cannot be loaded: {error}"))?;
    let absent = |_| {
        format!(
            "has no function {}, see futae_policy.h",
            ENTRY.to_string_lossy()
        )
    };
    // SAFETY: the header gives the function of this name this type.
    let entry = unsafe { library.get::<Entry>(ENTRY.to_bytes_with_nul()) };
    let entry = entry.map_err(absent)?;
    // SAFETY: as the header has it, the function takes nothing and may be called at any time.
    let declared = unsafe { entry() };
    // Never unloaded, so that its functions can be called as long as the process lives.
    std::mem::forget(library);
    checked(declared)
}

/// What a library declares, if it is of this version and complete.
fn checked(declared: *const Declared) -> Result<Functions, String> {
    let Some(declared) = NonNull::new(declared.cast_mut()) else {
        return Err("declares nothing: futae_policy returned NULL".to_owned());
    };
    if !declared.is_aligned() {
        return Err("returned an address that is none from futae_policy".to_owned());
    }
    // SAFETY: the header has the function return a structure that stays; its first two fields are there in every
    // version, so no more than those is read until they are known.
    let [version, size] = unsafe { declared.cast::<[u32; 2]>().read() };
    if version != VERSION {
        return Err(format!(
            "is for version {version} of the interface, and this futae has version {VERSION}: build it with the \
             futae_policy.h of this futae"
        ));
    }
    let wanted = size_of::<Declared>();
    if (size as usize) < wanted {
        return Err(format!(
            "declares {size} bytes where struct futae_policy has {wanted}: set size to sizeof(struct futae_policy)"
        ));
    }
    // SAFETY: the library says that this many bytes are there, and it is of the version that has these fields.
    let declared = unsafe { declared.read() };
    let absent = |name: &str| format!("has no function {name}, which is not optional");
    Ok(Functions {
        create: declared.create.ok_or_else(|| absent("create"))?,
        destroy: declared.destroy.ok_or_else(|| absent("destroy"))?,
        miss: declared.miss,
        insert: declared.insert.ok_or_else(|| absent("insert"))?,
        hit: declared.hit.ok_or_else(|| absent("hit"))?,
        victim: declared.victim.ok_or_else(|| absent("victim"))?,
        remove: declared.remove.ok_or_else(|| absent("remove"))?,
        foresee: declared.foresee,
    })
}

/// A state of a library's policy. Freed when dropped.
pub struct State {
    state: NonNull<c_void>,
    functions: Functions,
}

// SAFETY: the header has every state used by one thread at a time, whichever that is, and `&State` gives nothing
// that could be used by two (it is not `Sync`).
unsafe impl Send for State {}

impl State {
    /// A new state. The error is what the library says.
    pub fn new(
        functions: Functions,
        slots: u32,
        seed: u64,
        arguments: &[(CString, CString)],
    ) -> Result<Self, String> {
        let keys: Vec<_> = arguments.iter().map(|(key, _)| key.as_ptr()).collect();
        let values: Vec<_> = arguments.iter().map(|(_, value)| value.as_ptr()).collect();
        let setup = Setup {
            slots,
            seed,
            arguments: arguments.len() as u32,
            keys: keys.as_ptr(),
            values: values.as_ptr(),
        };
        let mut problem = [0 as c_char; PROBLEM_BYTES];
        // SAFETY: the setup, its texts and the room for a reason live until the call has returned. One byte less is
        // told than there is, so the text ends within the room.
        let state = unsafe {
            (functions.create)(&raw const setup, problem.as_mut_ptr(), PROBLEM_BYTES - 1)
        };
        let told = problem.iter().take_while(|&&byte| byte != 0);
        let told: Vec<u8> = told.map(|&byte| byte.cast_unsigned()).collect();
        let state = NonNull::new(state).ok_or_else(|| match told.is_empty() {
            true => "create returned NULL and gave no reason".to_owned(),
            false => String::from_utf8_lossy(&told).into_owned(),
        })?;
        Ok(Self { state, functions })
    }
}

/// `enum futae_kind`.
#[inline]
fn kind(kind: AccessKind) -> u32 {
    match kind {
        AccessKind::Read => 0,
        AccessKind::Write => 1,
        AccessKind::Demotion => 2,
        AccessKind::Notice => 3,
        AccessKind::Preload => 4,
    }
}

/// `enum futae_departure`.
#[inline]
fn departure(why: Departure) -> u32 {
    match why {
        Departure::Evicted => 0,
        Departure::Promoted => 1,
        Departure::Invalidated => 2,
    }
}

/// A slot, unless it is `FUTAE_NO_SLOT`.
#[inline]
fn slot(number: u32) -> Option<Slot> {
    (number != NO_SLOT).then_some(Slot(number))
}

impl Foreign for State {
    #[inline]
    fn tell(&mut self, calls: &[Call]) {
        let (functions, state) = (self.functions, self.state.as_ptr());
        for &call in calls {
            // SAFETY: the state is the library's own, is not freed yet, and no other thread uses it meanwhile.
            unsafe {
                match call {
                    Call::Hit(slot, block, why) => {
                        (functions.hit)(state, slot.0, block.raw(), kind(why));
                    }
                    Call::Insert(slot, block, why) => {
                        (functions.insert)(state, slot.0, block.raw(), kind(why));
                    }
                    Call::Remove(slot, why) => (functions.remove)(state, slot.0, departure(why)),
                }
            }
        }
    }

    fn admits(&self) -> bool {
        self.functions.miss.is_some()
    }

    #[inline]
    fn miss(&mut self, block: BlockId, why: AccessKind) -> c_int {
        match self.functions.miss {
            // SAFETY: as in `tell`.
            Some(miss) => unsafe { miss(self.state.as_ptr(), block.raw(), kind(why)) },
            None => 1,
        }
    }

    #[inline]
    fn victim(&mut self, calls: &[Call], block: BlockId, why: AccessKind) -> Option<Slot> {
        self.tell(calls);
        // SAFETY: as in `tell`.
        slot(unsafe { (self.functions.victim)(self.state.as_ptr(), block.raw(), kind(why)) })
    }

    fn foresees(&self) -> bool {
        self.functions.foresee.is_some()
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        let foresee = self.functions.foresee?;
        // SAFETY: as in `tell`; the function changes nothing.
        slot(unsafe { foresee(self.state.as_ptr(), ahead) })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: the state came from `create` of the same library, and is freed once.
        unsafe { (self.functions.destroy)(self.state.as_ptr()) }
    }
}
