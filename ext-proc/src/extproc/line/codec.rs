//! Messages go out as they are described, and come in as they are: they are read where they lie.

use bytes::{Buf, Bytes};
use isotherm_line::FromService;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineCodec;

impl Codec for LineCodec {
    type Encode = FromService;
    type Decode = Bytes;
    type Encoder = ProstEncoder<FromService>;
    type Decoder = Whole;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<FromService, ()>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Whole
    }
}

/// Hands over messages as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole;

impl Decoder for Whole {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
