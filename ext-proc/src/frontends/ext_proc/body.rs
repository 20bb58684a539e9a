//! The replies to body pieces, which pass unchanged.

use std::collections::VecDeque;

use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HttpBody, ProcessingResponse, StreamedBodyResponse,
};

use super::response::response;

/// The longest piece of a body in a reply, in bytes: what other endpoint pickers send.
const PIECE_BYTES_MAX: usize = 62_000;

/// Lets a piece of a body pass. In Envoy's full-duplex mode, the service has to send it back, in pieces of bounded length.
pub(super) fn pass(
    replies: &mut VecDeque<ProcessingResponse>,
    piece: HttpBody,
    full_duplex: bool,
    of_request: bool,
) {
    if !full_duplex {
        replies.push_back(body_response(None, of_request));
        return;
    }
    if piece.body.len() <= PIECE_BYTES_MAX {
        replies.push_back(body_response(Some(piece), of_request));
        return;
    }
    let count = piece.body.len().div_ceil(PIECE_BYTES_MAX);
    for (number, part) in (1..).zip(piece.body.chunks(PIECE_BYTES_MAX)) {
        let part = HttpBody {
            body: part.to_vec(),
            end_of_stream: piece.end_of_stream && number == count,
            ..HttpBody::default()
        };
        replies.push_back(body_response(Some(part), of_request));
    }
}

fn body_response(piece: Option<HttpBody>, of_request: bool) -> ProcessingResponse {
    let mutation = piece.map(|piece| BodyMutation {
        mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
            body: piece.body,
            end_of_stream: piece.end_of_stream,
            end_of_stream_without_message: piece.end_of_stream_without_message,
            grpc_message_compressed: piece.grpc_message_compressed,
            drain_complete: false,
        })),
    });
    let body = BodyResponse {
        response: Some(CommonResponse {
            body_mutation: mutation,
            ..CommonResponse::default()
        }),
    };
    response(if of_request {
        Response::RequestBody(body)
    } else {
        Response::ResponseBody(body)
    })
}
