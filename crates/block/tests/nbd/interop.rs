//! nbdinfo, nbdcopy, qemu-img, fio and nbd-client.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use umbrella_block::file::{Cache, FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server};
use umbrella_units::ByteSize;

use super::devices::{ScriptedMemory, Served, ServedFile};
use super::support::{noise, run};

const SIZE: usize = 24 << 20;

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&run("nbdinfo", &[&["--json"], arguments].concat())).expect("JSON")
}

#[test]
fn nbdinfo_sees_what_an_export_is_and_can() {
    let file = ServedFile::new(&noise(1, 1 << 20));
    let info = json(&[&file.served.uri("")]);
    assert_eq!((&info["protocol"], &info["structured"]), (&"newstyle-fixed".into(), &true.into()));
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], 1 << 20);
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
    for can in
        ["can_cache", "can_df", "can_fast_zero", "can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"]
    {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["is_read_only"], false);
    assert_eq!((&export["block_size_minimum"], &export["block_size_preferred"]), (&512.into(), &4096.into()));
    assert_eq!(export["block_size_maximum"], 32 << 20);
}

#[test]
fn nbdinfo_lists_every_export_with_its_description() {
    let size = ByteSize(1 << 20);
    let mut disk = ScriptedMemory::new(size);
    disk.geometry.rotational = true;
    let exports = vec![
        Export::new("first", Arc::new(disk)).described("the first one"),
        Export::new("second", Arc::new(Memory::new(size))).read_only(),
    ];
    let served = Served::new(exports, Limits::default());
    let listed = json(&["--list", &served.uri("")]);
    let shown: Vec<_> = listed["exports"].as_array().expect("a list").iter().collect();
    assert_eq!(shown.len(), 2);
    assert_eq!((&shown[0]["export-name"], &shown[0]["description"]), (&"first".into(), &"the first one".into()));
    assert_eq!((&shown[1]["export-name"], &shown[1]["is_read_only"]), (&"second".into(), &true.into()));
    assert_eq!((&shown[0]["is_rotational"], &shown[1]["is_rotational"]), (&true.into(), &false.into()));
    assert!(run("nbd-client", &["-l", "-unix", served.socket().to_str().expect("UTF-8")]).contains("second"));
}

#[test]
fn nbdinfo_maps_the_holes_of_a_file() {
    let mut content = noise(2, 3 << 20);
    content[1 << 20..2 << 20].fill(0);
    let file = ServedFile::new(&content);
    let options = ["--map", "--json", &file.served.uri("")];
    run("fallocate", &["--dig-holes", file.path.to_str().expect("UTF-8")]);
    let map: Value = serde_json::from_str(&run("nbdinfo", &options)).expect("JSON");
    let extents: Vec<_> =
        map.as_array().expect("a list").iter().map(|extent| (&extent["length"], &extent["type"])).collect();
    let mib = Value::from(1 << 20);
    assert_eq!(extents, [(&mib, &0.into()), (&mib, &3.into()), (&mib, &0.into())]);
}

/// Copies out and in with nbdcopy, on several connections, with small and large requests.
fn copies_both_ways(served: &Served, content: &[u8], now: impl Fn() -> Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, other) = (folder.path().join("out"), folder.path().join("in"));
    let (out, other) = (out.to_str().expect("UTF-8"), other.to_str().expect("UTF-8"));
    let uri = &served.uri("");
    for (seed, request) in
        [(100, "--request-size=4096"), (101, "--request-size=262144"), (102, "--request-size=33554432")]
    {
        let _ = fs::remove_file(out);
        run("nbdcopy", &[request, uri, out]);
        assert!(fs::read(out).expect("a copy") == now(), "{request}: what came out differs");
        let new = noise(seed, content.len());
        fs::write(other, &new).expect("a file");
        run("nbdcopy", &[request, "--flush", other, uri]);
        assert!(now() == new, "{request}: what went in differs");
    }
}

#[test]
fn nbdcopy_copies_a_file_in_the_page_cache() {
    let content = noise(3, SIZE);
    let file = ServedFile::new(&content);
    copies_both_ways(&file.served, &content, || file.bytes());
}

#[test]
fn nbdcopy_copies_a_file_in_memory() {
    let content = noise(4, SIZE);
    let file = ServedFile::within(Path::new("/dev/shm"), &content, OpenOptions::default());
    copies_both_ways(&file.served, &content, || file.bytes());
}

#[test]
fn nbdcopy_copies_a_file_with_direct_io() {
    let content = noise(5, SIZE);
    let options = OpenOptions { cache: Cache::Direct, ..OpenOptions::default() };
    let file = ServedFile::within(&std::env::temp_dir(), &content, options);
    copies_both_ways(&file.served, &content, || file.bytes());
}

#[test]
fn nbdcopy_copies_a_device_that_several_threads_call() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(SIZE as u64)));
    let served = Served::of(Arc::clone(&scripted) as _);
    copies_both_ways(&served, &vec![0; SIZE], || scripted.memory.to_bytes());
}

#[test]
fn nbdcopy_keeps_holes() {
    let content = noise(6, 2 << 20);
    let file = ServedFile::new(&content);
    let sparse = tempfile::NamedTempFile::new().expect("a file");
    sparse.as_file().set_len(2 << 20).expect("it grows");
    run("nbdcopy", &[sparse.path().to_str().expect("UTF-8"), &file.served.uri("")]);
    assert!(file.bytes() == vec![0; 2 << 20]);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&file.path).expect("a file"));
    assert_eq!(blocks, 0, "zeroes have been unmapped");
}

#[test]
fn qemu_img_reads_converts_and_compares() {
    let content = noise(7, SIZE);
    let file = ServedFile::new(&content);
    let uri = &file.served.uri("");
    let info: Value = serde_json::from_str(&run("qemu-img", &["info", "--output=json", uri])).expect("JSON");
    assert_eq!(info["virtual-size"], SIZE);
    let folder = tempfile::tempdir().expect("a folder");
    let (qcow, image) = (folder.path().join("qcow2"), folder.path().join("raw"));
    let (qcow, image) = (qcow.to_str().expect("UTF-8"), image.to_str().expect("UTF-8"));
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", uri, qcow]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", uri, qcow]);
    fs::write(image, noise(8, SIZE)).expect("a file");
    run("qemu-img", &["convert", "-n", "-W", "-f", "raw", "-O", "raw", image, uri]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", uri, image]);
    assert!(file.bytes() == noise(8, SIZE));
}

fn fio_verifies(served: &Served) {
    let uri = format!("--uri={}", served.uri(""));
    for (rw, blocks, depth) in [("randrw", "512-64k", "16"), ("randwrite", "4k-4k", "1"), ("write", "128k-1m", "4")] {
        let (rw, blocks, depth) = (format!("--rw={rw}"), format!("--bsrange={blocks}"), format!("--iodepth={depth}"));
        let job = [
            "--name=verify",
            "--ioengine=nbd",
            "--size=16m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--fsync=64",
        ];
        run("fio", &[&job[..], &[&uri, &rw, &blocks, &depth, "--output-format=terse"]].concat());
    }
}

#[test]
fn fio_verifies_a_file() {
    fio_verifies(&ServedFile::new(&vec![0; SIZE]).served);
}

#[test]
fn fio_verifies_a_file_with_direct_io() {
    let options = OpenOptions { cache: Cache::Direct, ..OpenOptions::default() };
    fio_verifies(&ServedFile::within(&std::env::temp_dir(), &vec![0; SIZE], options).served);
}

#[test]
fn fio_verifies_a_device_that_several_threads_call() {
    fio_verifies(&Served::of(Arc::new(ScriptedMemory::new(ByteSize(SIZE as u64)))));
}

#[test]
fn an_export_is_reached_over_tcp_by_its_name() {
    let image = tempfile::NamedTempFile::new().expect("a file");
    fs::write(image.path(), noise(9, 1 << 20)).expect("a file");
    let device = FileDevice::open(image.path(), OpenOptions::default()).expect("a device");
    let exports =
        vec![Export::new("other", Arc::new(Memory::new(ByteSize(512)))), Export::of_file("disk", Arc::new(device))];
    let address = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
    let exports = Exports::new(exports).expect("the names differ");
    let server = Server::start(exports, &[address], Limits::default()).expect("it starts");
    let chosen = server.addresses().next().expect("one").to_string();
    assert_eq!(run("nbdinfo", &["--size", &format!("nbd://{chosen}/disk")]).trim(), (1 << 20).to_string());
    assert_eq!(run("nbdinfo", &["--size", &format!("nbd://{chosen}")]).trim(), "512", "the first is the default");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    run("nbdcopy", &[&format!("nbd://{chosen}/disk"), out.to_str().expect("UTF-8")]);
    assert!(fs::read(out).expect("a copy") == noise(9, 1 << 20));
}
