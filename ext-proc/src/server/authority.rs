//! Accepts gRPC calls whose `:authority` is no host name.
//!
//! Envoy's gRPC client sends the name of its cluster as the authority, and the names of Istio's clusters have characters that
//! no authority may have (`outbound|9002||isotherm.default.svc.cluster.local`). Go's server accepts that; the HTTP/2 library
//! of this service resets such a stream before the service sees it, and has no option against it.
//!
//! [`AuthorityReplacer`] therefore reads the frames of a connection first. All calls of a connection come from one cluster: if
//! the first one has a valid authority, the rest of the connection passes unread. If not, every block of headers is decoded
//! and written again, with a valid authority and without compression.
//!
//! Rejected: an EnvoyFilter that sets the authority, which no other endpoint picker needs; a patch of the library by Git.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use hyper::http::uri::Authority;
use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The beginning of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// The longest frame that a client may send, which is the service's setting, too.
const FRAME_BYTES_MAX: usize = 16_384;
/// The longest block of headers that is written again, in bytes.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x01;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

const AUTHORITY: &[u8] = b":authority";
/// The authority that replaces an invalid one.
const REPLACEMENT: &[u8] = b"isotherm";

/// A connection whose calls all have a valid authority.
pub(super) struct AuthorityReplacer<S> {
    stream: S,
    /// `None` once the connection passes unread.
    frames: Option<Box<Frames>>,
}

/// The frames of a connection whose headers are read.
struct Frames {
    decoder: Decoder<'static>,
    has_preface: bool,
    /// Whether an invalid authority was found.
    is_replacing: bool,
    /// Bytes of the current frame that pass unread.
    passing_bytes: usize,
    /// Whether the connection passes unread behind the output.
    is_over: bool,
    /// The block of headers that is being gathered, with the frames that it came in.
    block: Option<Block>,
    input: BytesMut,
    output: BytesMut,
}

#[derive(Default)]
struct Block {
    stream_id: u32,
    ends_stream: bool,
    fragment: Vec<u8>,
    frames: Vec<u8>,
}

struct FrameHeader {
    length: usize,
    kind: u8,
    flags: u8,
    stream_id: u32,
}

/// The connection passes unread from here on.
struct PassesUnread;

impl<S> AuthorityReplacer<S> {
    pub(super) fn new(stream: S) -> Self {
        let frames = Frames {
            decoder: Decoder::new(),
            has_preface: false,
            is_replacing: false,
            passing_bytes: 0,
            is_over: false,
            block: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
        };
        Self {
            stream,
            frames: Some(Box::new(frames)),
        }
    }
}

impl Frames {
    /// Moves what has arrived to the output, as far as it is complete.
    fn advance(&mut self) -> Result<(), PassesUnread> {
        if !self.has_preface {
            let Some(preface) = self.input.get(..PREFACE.len()) else {
                return Ok(());
            };
            if preface != PREFACE {
                return Err(PassesUnread);
            }
            self.pass(PREFACE.len());
            self.has_preface = true;
        }
        loop {
            self.pass_rest_of_frame();
            let Some(header) = self.frame_header().filter(|_| self.passing_bytes == 0) else {
                return Ok(());
            };
            let frame_bytes = FRAME_HEADER_BYTES + header.length;
            if !matches!(header.kind, HEADERS | CONTINUATION) {
                self.passing_bytes = frame_bytes;
                continue;
            }
            if header.length > FRAME_BYTES_MAX {
                return Err(PassesUnread);
            }
            if self.input.len() < frame_bytes {
                return Ok(());
            }
            let frame = self.input.split_to(frame_bytes);
            self.gather(&header, &frame)?;
        }
    }

    fn pass(&mut self, bytes: usize) {
        let passed = self.input.split_to(bytes);
        self.output.unsplit(passed);
    }

    fn pass_rest_of_frame(&mut self) {
        let bytes = self.passing_bytes.min(self.input.len());
        self.passing_bytes -= bytes;
        self.pass(bytes);
    }

    fn frame_header(&self) -> Option<FrameHeader> {
        let mut header = self.input.get(..FRAME_HEADER_BYTES)?;
        Some(FrameHeader {
            length: usize::try_from(header.get_uint(3)).ok()?,
            kind: header.get_u8(),
            flags: header.get_u8(),
            stream_id: header.get_u32() & (u32::MAX >> 1),
        })
    }

    /// Adds a frame to the block of headers, and writes the block when it is whole.
    fn gather(&mut self, header: &FrameHeader, frame: &[u8]) -> Result<(), PassesUnread> {
        let mut block = self.block.take().unwrap_or_else(|| Block {
            stream_id: header.stream_id,
            ends_stream: header.flags & END_STREAM != 0,
            ..Block::default()
        });
        block.frames.extend_from_slice(frame);
        let fragment = fragment(header, frame);
        block
            .fragment
            .extend_from_slice(fragment.unwrap_or_default());
        let is_broken = fragment.is_none() || block.fragment.len() > BLOCK_BYTES_MAX;
        if is_broken || header.flags & END_HEADERS != 0 {
            return self.write(&block, is_broken);
        }
        self.block = Some(block);
        Ok(())
    }

    fn write(&mut self, block: &Block, is_broken: bool) -> Result<(), PassesUnread> {
        let decoded = match is_broken {
            true => None,
            false => self.decoder.decode(&block.fragment).ok(),
        };
        // The library reports a broken block; it cannot go on without the compression state of the blocks before.
        let Some(mut headers) = decoded else {
            self.output.extend_from_slice(&block.frames);
            return Err(PassesUnread);
        };
        let invalid = headers.iter_mut().find(|(name, value)| {
            name == AUTHORITY && Authority::try_from(value.as_slice()).is_err()
        });
        match invalid {
            Some((_, value)) => {
                self.is_replacing = true;
                *value = REPLACEMENT.to_vec();
            }
            None if !self.is_replacing => {
                self.output.extend_from_slice(&block.frames);
                return Err(PassesUnread);
            }
            None => {}
        }
        write_block(block, &headers, &mut self.output);
        Ok(())
    }
}

/// The part of a frame that belongs to the block of headers; `None` if the frame is malformed.
fn fragment<'a>(header: &FrameHeader, frame: &'a [u8]) -> Option<&'a [u8]> {
    let mut payload = frame.get(FRAME_HEADER_BYTES..)?;
    if header.kind == HEADERS && header.flags & PADDED != 0 {
        let (padding, rest) = payload.split_first()?;
        payload = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if header.kind == HEADERS && header.flags & PRIORITY != 0 {
        payload = payload.get(5..)?;
    }
    Some(payload)
}

/// Writes headers as literals without compression (RFC 7541, section 6.2.2).
fn write_block(block: &Block, headers: &[(Vec<u8>, Vec<u8>)], output: &mut BytesMut) {
    let mut encoded = Vec::with_capacity(block.fragment.len() * 2);
    for (name, value) in headers {
        encoded.push(0);
        write_text(name, &mut encoded);
        write_text(value, &mut encoded);
    }
    let mut pieces = encoded.chunks(FRAME_BYTES_MAX).peekable();
    let mut kind = HEADERS;
    while let Some(piece) = pieces.next() {
        let end_headers = if pieces.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        let end_stream = if block.ends_stream && kind == HEADERS {
            END_STREAM
        } else {
            0
        };
        output.put_uint(piece.len() as u64, 3);
        output.put_u8(kind);
        output.put_u8(end_headers | end_stream);
        output.put_u32(block.stream_id);
        output.put_slice(piece);
        kind = CONTINUATION;
    }
}

/// Writes a string with its length, an integer with a prefix of 7 bits (RFC 7541, sections 5.1 and 5.2).
fn write_text(text: &[u8], encoded: &mut Vec<u8>) {
    const PREFIX_MAX: usize = 0x7f;
    match u8::try_from(text.len()) {
        Ok(length) if text.len() < PREFIX_MAX => encoded.push(length),
        _ => {
            encoded.push(0x7f);
            let mut rest = text.len() - PREFIX_MAX;
            while rest >= 0x80 {
                encoded.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or_default());
                rest >>= 7;
            }
            encoded.push(u8::try_from(rest).unwrap_or_default());
        }
    }
    encoded.extend_from_slice(text);
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityReplacer<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let Some(frames) = &mut this.frames else {
                return Pin::new(&mut this.stream).poll_read(cx, buf);
            };
            if !frames.output.is_empty() {
                let bytes = frames.output.len().min(buf.remaining());
                buf.put_slice(&frames.output.split_to(bytes));
                return Poll::Ready(Ok(()));
            }
            if frames.is_over {
                this.frames = None;
                continue;
            }
            let mut chunk = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            frames.input.extend_from_slice(read.filled());
            if let Err(PassesUnread) = frames.advance() {
                let rest = std::mem::take(&mut frames.input);
                frames.output.extend_from_slice(&rest);
                frames.is_over = true;
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityReplacer<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
