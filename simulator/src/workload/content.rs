//! Bytes per token that differ by conversation, and images: traffic whose length in tokens the service cannot know from its bytes.
//!
//! The filter presumes four bytes a token. English has more, code, JSON and Chinese have less (Chinese by tokenizer, 2.2 to
//! 3). A conversation keeps its content. A text that conversations share, like a system prompt, has the content of the first
//! of them. An image is 576 tokens (LLaVA-1.5) to several thousand (tiles of high resolution) behind a digest.

use std::collections::BTreeMap;

use super::Workload;
use super::rng::{LogNormal, SeededRng};
use crate::prompt::{Content, Piece, mix};

/// Contents of the conversations of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentMix {
    /// The workload's name.
    pub name: &'static str,
    /// Share of the conversations that show an image.
    pub image_share: f64,
}

/// Content of a conversation, with its share; Chinese is drawn from its range.
const SHARES: [(f64, Option<Content>); 4] = [
    (0.40, Some(Content::ENGLISH)),
    (0.25, Some(Content::CODE)),
    (0.15, Some(Content::JSON)),
    (0.20, None),
];
const IMAGE: LogNormal = LogNormal::new(1_500.0, 0.7);
const IMAGE_TOKENS: (u32, u32) = (576, 6_000);
/// Keeps random numbers and identities of contents apart from those of the workload.
const CONTENT: u64 = 0x636f_6e74_656e_7401;

impl ContentMix {
    /// The workload with contents; times, lengths in tokens and sharing stay, but for the images.
    pub fn applied(&self, mut workload: Workload, seed: u64) -> Workload {
        let mut rng = SeededRng::new(mix(CONTENT, seed));
        let mut of_session: BTreeMap<u64, Content> = BTreeMap::new();
        let mut of_text: BTreeMap<u64, Content> = BTreeMap::new();
        for session in &mut workload.sessions {
            let drawn = content(&mut rng);
            let own = *of_session.entry(session.key).or_insert(drawn);
            let image = rng.chance(self.image_share).then(|| image(&mut rng, seed));
            let before = session
                .steps
                .first()
                .map_or(0, |step| step.prompt.pieces().len().saturating_sub(1));
            for step in &mut session.steps {
                let mut pieces = step.prompt.pieces().to_vec();
                for piece in &mut pieces {
                    piece.content = *of_text.entry(piece.id).or_insert(own);
                }
                if let Some(image) = image {
                    pieces.insert(before.min(pieces.len()), image);
                }
                step.prompt = crate::prompt::Prompt::new(pieces);
            }
        }
        Workload {
            name: self.name.to_owned(),
            ..workload
        }
    }
}

/// A random content of a conversation.
fn content(rng: &mut SeededRng) -> Content {
    let known = rng.weighted(&SHARES, |(share, _)| *share);
    let (least, most) = Content::CHINESE;
    let span = f64::from(most - least) * rng.unit();
    let chinese = Content::Text(least + span as u16);
    known.and_then(|(_, content)| *content).unwrap_or(chinese)
}

/// A random image that no other conversation shows.
fn image(rng: &mut SeededRng, seed: u64) -> Piece {
    Piece {
        id: mix(mix(CONTENT, seed), rng.id()),
        tokens: IMAGE.tokens(rng, IMAGE_TOKENS),
        content: Content::Image,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Session;
    use super::super::chat::Chat;
    use super::*;

    fn chats(image_share: f64) -> Workload {
        let mix = ContentMix {
            name: "mixed",
            image_share,
        };
        mix.applied(Chat::wildchat().generate(1), 1)
    }

    fn density(session: &Session) -> f64 {
        let prompt = &session.steps[0].prompt;
        f64::from(prompt.bytes()) / f64::from(prompt.tokens())
    }

    #[test]
    fn conversations_differ_in_bytes_per_token() {
        let workload = chats(0.0);
        // The bytes of a shorter text are rounded down too far.
        let long = workload.sessions.iter();
        let long = long.filter(|session| session.steps[0].prompt.tokens() > 100);
        let densities: Vec<f64> = long.map(density).collect();
        let share = |from: f64, to: f64| {
            let within = densities.iter().filter(|one| (from..to).contains(*one));
            within.count() as f64 / densities.len() as f64
        };
        assert!(share(2.15, 4.55) > 0.999);
        assert!(share(2.15, 3.05) > 0.4, "code, JSON and Chinese");
        assert!(share(4.3, 4.55) > 0.25, "English");
    }

    #[test]
    fn a_conversation_repeats_its_image_in_every_turn() {
        let workload = chats(0.4);
        let is_image = |piece: &&Piece| piece.content == Content::Image;
        let images = |session: &Session| -> Vec<Piece> {
            let steps = session.steps.iter();
            steps
                .filter_map(|step| step.prompt.pieces().iter().find(is_image).copied())
                .collect()
        };
        let mut shown = 0;
        for session in &workload.sessions {
            let images = images(session);
            assert!(images.is_empty() || images.len() == session.steps.len());
            assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
            shown += usize::from(!images.is_empty());
        }
        let share = shown as f64 / workload.sessions.len() as f64;
        assert!((share - 0.4).abs() < 0.03, "{share}");
    }

    #[test]
    fn a_shared_text_has_the_content_of_its_first_conversation() {
        let mut of_text: BTreeMap<u64, Content> = BTreeMap::new();
        for session in &chats(0.0).sessions {
            for piece in session.steps.iter().flat_map(|step| step.prompt.pieces()) {
                assert_eq!(
                    *of_text.entry(piece.id).or_insert(piece.content),
                    piece.content
                );
            }
        }
    }
}
