use std::fs;
use std::time::{Duration, Instant};

use super::*;

/// A directory with the one file of a cgroup that the thread writes.
fn cgroup() -> tempfile::TempDir {
    let cgroup = tempfile::tempdir().unwrap();
    fs::write(cgroup.path().join("memory.reclaim"), "").unwrap();
    cgroup
}

#[test]
fn an_order_is_written_in_pieces_and_answered() {
    let cgroup = cgroup();
    let open = fs::File::open(cgroup.path()).unwrap();
    let mut reclaimer = Reclaimer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    reclaimer.ask(&open, Bytes(PIECE + 5)).unwrap();
    assert_eq!(runtime.block_on(reclaimer.answer()), Answer::Done);
    assert!(reclaimer.is_idle());
    let written = fs::read_to_string(cgroup.path().join("memory.reclaim")).unwrap();
    assert_eq!(written, format!("{PIECE}5"), "one piece after the other");
    assert!(reclaimer.ask(fs::File::open("/proc").unwrap(), Bytes(1)).is_err(), "no such file there");
}

#[test]
fn an_interrupt_ends_an_unanswered_order() {
    // A full pipe stands for a busy kernel: the write ends only when interrupted.
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let full = vec![0; 1 << 20];
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &full).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let reclaimer = Reclaimer::start().unwrap();
    reclaimer.shared.busy.store(true, Ordering::Release);
    reclaimer.orders.send(Order { number: 0, file: writer, bytes: Bytes(5) }).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!reclaimer.is_idle());
    let started = Instant::now();
    reclaimer.interrupt();
    while !reclaimer.is_idle() {
        assert!(started.elapsed() < Duration::from_secs(5), "not interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interrupted_order_does_not_answer_the_next() {
    let cgroup = cgroup();
    let open = fs::File::open(cgroup.path()).unwrap();
    let mut reclaimer = Reclaimer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The answer to this order is dropped.
    reclaimer.ask(&open, Bytes(5)).unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    reclaimer.last += 1;
    reclaimer.orders.send(Order { number: reclaimer.last, file: full.into(), bytes: Bytes(5) }).unwrap();
    assert_eq!(runtime.block_on(reclaimer.answer()), Answer::Refused);
}
