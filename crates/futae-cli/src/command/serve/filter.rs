//! The system calls of a server that has started. Any other fails with ENOSYS, as on a kernel that does not have it, so that libraries fall
//! back to others where they can.
//!
//! What io_uring does is not seen by the filter; the kernel checks it as it checks the user's own calls.

use anyhow::anyhow;
use futae_terminal::failure::Failure;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// Calls that are allowed whatever their arguments.
const ALLOWED: &[i64] = &[
    // Files that are open, and their contents.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_getdents64,
    // Files by their names: exports that are added, certificates, sockets, marks.
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_getcwd,
    // io_uring.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_memfd_create,
    // Threads, signals and time.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_membarrier,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // What the machine and the process are.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    // Sockets that are there, and waiting.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
];

/// The same by calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_pipe,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

/// Kinds of sockets that a server makes.
const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// What prctl(2) is asked for: names of threads and of memory.
const NAMING: [i32; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// The filter, or why there is none.
pub(super) fn program() -> Result<BpfProgram, Failure> {
    let failed = |error: seccompiler::BackendError| Failure::from(anyhow!("--seccomp: {error}"));
    let all = ALLOWED.iter().chain(ALLOWED_HERE);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = all.map(|&call| (call, Vec::new())).collect();
    let when = |at, size, operator, value| {
        let condition = SeccompCondition::new(at, size, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let is_one_of = |values: &[i32]| {
        let rule = |&value: &i32| when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64);
        values.iter().map(rule).collect::<Result<Vec<_>, _>>()
    };
    // Threads, and no processes. What clone3(2) is asked for lies in memory; libraries do without it.
    let thread = libc::CLONE_THREAD as u64;
    let threads = when(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(thread),
        thread,
    );
    rules.insert(libc::SYS_clone, vec![threads.map_err(failed)?]);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.insert(call, is_one_of(&FAMILIES).map_err(failed)?);
    }
    rules.insert(libc::SYS_prctl, is_one_of(&NAMING).map_err(failed)?);
    // Limits are read, and none is set.
    let no_new_limit = when(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);
    rules.insert(libc::SYS_prlimit64, vec![no_new_limit.map_err(failed)?]);
    let here = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, here);
    filter.and_then(BpfProgram::try_from).map_err(failed)
}

/// Forbids all other calls in all threads, for good.
pub(super) fn apply() -> Result<(), Failure> {
    let applied = apply_filter_all_threads(&program()?);
    applied
        .map_err(|error| anyhow!("--seccomp: the kernel does not take the filter: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::UdpSocket;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    #[test]
    fn a_thread_under_the_filter_serves_and_starts_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().to_owned();
        let under_it = thread::spawn(move || {
            let program = program().ok().expect("a filter");
            seccompiler::apply_filter(&program).expect("applied");
            fs::write(path.join("file"), "text").expect("files are written");
            UnixStream::pair().expect("sockets are made");
            UdpSocket::bind("127.0.0.1:0").expect("of the network, too");
            let thread = thread::spawn(|| 7).join();
            assert_eq!(thread.expect("threads are started"), 7);
            let forbidden = Some(libc::ENOSYS);
            let started = Command::new("/bin/true").spawn();
            assert_eq!(started.expect_err("no program").raw_os_error(), forbidden);
            let linked = symlink("file", path.join("link"));
            assert_eq!(linked.expect_err("not needed").raw_os_error(), forbidden);
        });
        under_it.join().expect("it goes well");
    }
}
