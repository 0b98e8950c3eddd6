//! What libnbd's shell finds: every command, and every way to ask wrongly.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_block::file::OpenOptions;
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Export, Limits};
use umbrella_units::ByteSize;

use super::devices::{ScriptedMemory, Served, ServedFile};
use super::support::{noise, run};

const SIZE: usize = 1 << 20;

/// What every script has: a check that a call fails with an error of the protocol, with libnbd's own checks off.
const PRELUDE: &str = "
import errno
h.set_strict_mode(0)
def fails(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except nbd.Error as error:
        assert error.errnum == code, (error.errnum, str(error))
    else:
        raise AssertionError('it did not fail')

";

/// Runs a script; `h` is connected to the export.
fn script(served: &Served, export: &str, script: &str) {
    let connect = format!("h.add_meta_context('base:allocation')\nh.connect_uri('{}')", served.uri(export));
    shell(&[PRELUDE, &connect, script].concat());
}

/// Runs a script that connects by itself. The package is the system's, so is the interpreter, whatever comes first in
/// PATH.
fn shell(script: &str) {
    run("/usr/bin/python3", &["-m", "nbd", "-c", script]);
}

#[test]
fn every_command_does_what_it_says() {
    let file = ServedFile::new(&noise(1, SIZE));
    script(
        &file.served,
        "",
        "
h.pwrite(b'a' * 4096, 0)
h.pwrite(b'b' * 4096, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(8192, 0) == b'a' * 4096 + b'b' * 4096
assert h.pread(8192, 0, nbd.CMD_FLAG_DF) == b'a' * 4096 + b'b' * 4096
h.flush()
h.zero(4096, 0)
h.zero(4096, 8192, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.zero(4096, 16384, nbd.CMD_FLAG_FAST_ZERO)
h.trim(65536, 65536, nbd.CMD_FLAG_FUA)
h.cache(65536, 0)
assert h.pread(4096, 0) == bytes(4096) and h.pread(4096, 8192) == bytes(4096)
assert h.pread(4096, 4096) == b'b' * 4096
found = []
h.block_status(1048576, 0, lambda context, offset, entries, error: found.append((context, offset, entries)))
assert found[0][0] == 'base:allocation' and sum(found[0][2][::2]) == 1048576, found
assert 3 in found[0][2][1::2], found
found.clear()
h.block_status(1048576, 0, lambda *args: found.append(args[2]), nbd.CMD_FLAG_REQ_ONE)
assert len(found[0]) == 2, found
h.shutdown()
",
    );
    let mut expected = noise(1, SIZE);
    for hole in [0..4096, 8192..12288, 16384..20480, 65536..131_072] {
        expected[hole].fill(0);
    }
    expected[4096..8192].fill(b'b');
    assert!(file.bytes() == expected);
}

#[test]
fn a_long_read_of_a_file_with_holes_comes_in_pieces_or_whole_as_asked() {
    let mut content = noise(2, 4 << 20);
    content[1 << 20..3 << 20].fill(0);
    let file = ServedFile::new(&content);
    run("fallocate", &["--dig-holes", file.path.to_str().expect("UTF-8")]);
    script(
        &file.served,
        "",
        &format!(
            "
path = '{}'
pieces = []
def piece(data, offset, status, error):
    pieces.append((status, offset, len(data)))
whole = h.pread_structured(4194304, 0, piece)
assert nbd.READ_HOLE in [status for status, _, _ in pieces], pieces
assert sum(length for _, _, length in pieces) == 4194304, pieces
pieces.clear()
assert h.pread_structured(4194304, 0, piece, nbd.CMD_FLAG_DF) == whole
assert [(status, offset) for status, offset, _ in pieces] == [(nbd.READ_DATA, 0)], pieces
assert whole == open(path, 'rb').read()
",
            file.path.display()
        ),
    );
}

#[test]
fn what_is_beyond_the_end_is_refused_and_nothing_changes() {
    let file = ServedFile::new(&noise(3, SIZE));
    script(
        &file.served,
        "",
        "
for offset in (1048576, 1048064, 2**63 - 512):
    fails(errno.ENOSPC, h.pwrite, b'x' * 1024, offset)
    fails(errno.EINVAL, h.pread, 1024, offset)
    fails(errno.EINVAL, h.trim, 1024, offset)
    fails(errno.ENOSPC, h.zero, 1024, offset)
    fails(errno.EINVAL, h.cache, 1024, offset)
    fails(errno.EINVAL, h.block_status, 1024, offset, lambda *args: 0)
assert h.pread(512, 1048064)
",
    );
    assert!(file.bytes() == noise(3, SIZE));
}

#[test]
fn what_is_not_whole_blocks_is_refused() {
    let scripted = Arc::new(ScriptedMemory::with_blocks(ByteSize(SIZE as u64), 4096));
    let served = Served::of(Arc::clone(&scripted) as _);
    script(
        &served,
        "",
        "
assert h.get_block_size(nbd.SIZE_MINIMUM) == 4096
for offset, length in ((512, 4096), (0, 512), (1, 4096), (0, 4097), (4095, 1)):
    fails(errno.EINVAL, h.pwrite, b'x' * length, offset)
    fails(errno.EINVAL, h.pread, length, offset)
    fails(errno.EINVAL, h.zero, length, offset)
h.pwrite(b'x' * 4096, 4096)
assert h.pread(4096, 4096) == b'x' * 4096
",
    );
    assert!(scripted.memory.to_bytes()[..4096] == [0; 4096]);
}

#[test]
fn a_read_only_export_refuses_changes_whatever_the_client_believes() {
    let exports = vec![Export::new("", Arc::new(Memory::from_bytes(noise(4, SIZE)))).read_only()];
    let served = Served::new(exports, Limits::default());
    script(
        &served,
        "",
        "
assert h.is_read_only()
for length in (512, 4096, 1048576):
    fails(errno.EPERM, h.pwrite, b'x' * length, 0)
fails(errno.EPERM, h.zero, 4096, 0)
fails(errno.EPERM, h.trim, 4096, 0)
before = h.pread(1048576, 0)
h.flush()
assert before == h.pread(1048576, 0)
",
    );
}

#[test]
fn flags_that_a_command_does_not_have_are_refused() {
    let file = ServedFile::new(&noise(5, SIZE));
    script(
        &file.served,
        "",
        "
fails(errno.EINVAL, h.pread, 512, 0, nbd.CMD_FLAG_NO_HOLE)
fails(errno.EINVAL, h.pwrite, b'x' * 512, 0, nbd.CMD_FLAG_DF)
fails(errno.EINVAL, h.trim, 512, 0, 0x100)
assert h.pread(512, 0)
",
    );
}

#[test]
fn zeroes_that_would_have_to_be_written_are_not_quick() {
    let file = ServedFile::within(Path::new("/dev/shm"), &noise(6, SIZE), OpenOptions::default());
    script(
        &file.served,
        "",
        "
h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO)
fails(errno.ENOTSUP, h.zero, 4096, 8192, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
",
    );
    assert!(file.bytes()[8192..12288] == noise(6, SIZE)[8192..12288]);
}

#[test]
fn a_failed_flush_is_an_io_error_and_reads_continue() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(SIZE as u64)));
    let served = Served::of(Arc::clone(&scripted) as _);
    scripted.fails_flushes.store(true, Ordering::Relaxed);
    script(
        &served,
        "",
        "
h.pwrite(b'x' * 512, 0)
fails(errno.EIO, h.flush)
fails(errno.EIO, h.trim, 512, 512, nbd.CMD_FLAG_FUA)
assert h.pread(512, 0) == b'x' * 512
",
    );
    assert!(served.server.stop().is_err(), "the last flush failed, too");
}

#[test]
fn fua_reaches_the_device() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(SIZE as u64)));
    let served = Served::of(Arc::clone(&scripted) as _);
    script(
        &served,
        "",
        "
h.pwrite(b'x' * 512, 0)
h.pwrite(b'x' * 512, 0, nbd.CMD_FLAG_FUA)
h.zero(512, 0, nbd.CMD_FLAG_FUA)
",
    );
    assert_eq!(scripted.writes_through.load(Ordering::Relaxed), 2);
    assert_eq!(scripted.flushes.load(Ordering::Relaxed), 0, "FUA is not a flush");
}

#[test]
fn what_one_connection_writes_another_reads_and_flushes() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(SIZE as u64)));
    let served = Served::of(Arc::clone(&scripted) as _);
    let second = format!(
        "
assert h.can_multi_conn()
other = nbd.NBD()
other.connect_uri('{}')
h.pwrite(b'1' * 4096, 0)
assert other.pread(4096, 0) == b'1' * 4096
other.flush()
other.pwrite(b'2' * 4096, 0)
assert h.pread(4096, 0) == b'2' * 4096
other.shutdown()
",
        served.uri("")
    );
    script(&served, "", &second);
    assert_eq!(scripted.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn many_requests_under_way_are_each_answered_once() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(16 << 20)));
    for served in [Served::of(Arc::clone(&scripted) as _), ServedFile::new(&vec![0; 16 << 20]).served] {
        script(
            &served,
            "",
            "
answered = []
buffers = {}
for i in range(512):
    length = 512 * (1 + i % 60)
    h.aio_pwrite(bytes([i % 251]) * length, i * 32768, lambda error, i=i: answered.append((i, error.value)) or 1)
while h.aio_in_flight():
    h.poll(-1)
assert sorted(answered) == [(i, 0) for i in range(512)]
answered.clear()
for i in range(512):
    buffers[i] = nbd.Buffer(512 * (1 + i % 60))
    h.aio_pread(buffers[i], i * 32768, lambda error, i=i: answered.append((i, error.value)) or 1)
while h.aio_in_flight():
    h.poll(-1)
assert sorted(answered) == [(i, 0) for i in range(512)]
for i in range(512):
    assert buffers[i].to_bytearray() == bytes([i % 251]) * (512 * (1 + i % 60)), i
",
        );
    }
}

#[test]
fn a_client_without_structured_answers_is_served_as_well() {
    let file = ServedFile::new(&noise(7, 4 << 20));
    let uri = file.served.uri("");
    let plain = format!(
        "
h.set_request_structured_replies(False)
h.connect_uri('{uri}')
assert not h.get_structured_replies_negotiated()
whole = h.pread(4194304, 0)
assert whole == h.pread(2097152, 0) + h.pread(2097152, 2097152)
h.pwrite(whole, 0)
fails(errno.EINVAL, h.pread, 512, 4194304)
fails(errno.EINVAL, h.pread, 512, 0, nbd.CMD_FLAG_DF)
"
    );
    shell(&[PRELUDE, &plain].concat());
    assert!(file.bytes() == noise(7, 4 << 20));
}
