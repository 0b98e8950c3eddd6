//! A client of an NBD server that asks for one thing after the other: every answer that it got is an acknowledgement.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// A connection to one export.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Connects to the export of that name.
    pub fn connect(socket: &Path, name: &str) -> io::Result<Client> {
        let mut client = Client(UnixStream::connect(socket)?);
        client.0.set_read_timeout(Some(Duration::from_secs(60)))?;
        client.take(18)?;
        client.0.write_all(&3_u32.to_be_bytes())?;
        let length = (name.len() as u32).to_be_bytes();
        client.0.write_all(&[&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &length, name.as_bytes()].concat())?;
        client.take(10)?;
        Ok(client)
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut taken = vec![0; bytes];
        self.0.read_exact(&mut taken)?;
        Ok(taken)
    }

    fn call(&mut self, command: u16, block: u64, length: usize, data: &[u8]) -> io::Result<()> {
        self.call_with(0, command, block, length, data)
    }

    fn call_with(&mut self, flags: u16, command: u16, block: u64, length: usize, data: &[u8]) -> io::Result<()> {
        let (magic, offset) = (0x2560_9513_u32, block * BLOCK as u64);
        let (flags, command) = (flags.to_be_bytes(), command.to_be_bytes());
        let head = [&magic.to_be_bytes()[..], &flags, &command, &[7; 8], &offset.to_be_bytes()].concat();
        self.0.write_all(&[&head[..], &(length as u32).to_be_bytes(), data].concat())?;
        let answer = self.take(16)?;
        if answer[4..8] == [0; 4] { Ok(()) } else { Err(io::Error::other("the server refused")) }
    }

    /// Reads `blocks` blocks.
    pub fn read(&mut self, block: u64, blocks: u64) -> io::Result<Vec<u8>> {
        self.call(0, block, blocks as usize * BLOCK, &[])?;
        self.take(blocks as usize * BLOCK)
    }

    /// Writes blocks.
    pub fn write(&mut self, block: u64, data: &[u8]) -> io::Result<()> {
        self.call(1, block, data.len(), data)
    }

    /// Writes blocks, and makes them durable (FUA).
    pub fn write_through(&mut self, block: u64, data: &[u8]) -> io::Result<()> {
        self.call_with(1, 1, block, data.len(), data)
    }

    /// Makes durable what was written before.
    pub fn flush(&mut self) -> io::Result<()> {
        self.call(3, 0, 0, &[])
    }
}
