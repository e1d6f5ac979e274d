//! Signs of typing: one script each.
//!
//! A sign that comes sooner than a second after the last that was told is kept and not told. The host looks at it again
//! when the second is over; here nothing runs between two calls. A sign of somebody who goes on typing can wait for the
//! next, which comes in a moment or never, and what was told ends by itself. That somebody *stopped* has no next: whoever
//! says so is answered once it was told, a second later at most. Whoever asks who types is told the truth at once.

use crate::keyspace::{Publishing, Signing, decode_typists, decode_wait};
use rollcall_core::{ConversationId, Error, Span};
use rollcall_functions::capabilities::{Typing, TypingSignal, Typist};

use super::batch::{Batch, piece, pieces};
use super::{Platform, Wire, bounded};

impl<W: Wire> Typing for Platform<W> {
    async fn set_typing(&self, signs: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        bounded(&signs)?;
        let waits = self.sign(signs.iter().map(|sign| (sign, Signing::Lasts(sign.lasts)))).await?;
        let untold = |(sign, wait): (&'_ TypingSignal, &Result<Option<Span>, Error>)| match wait {
            Ok(Some(wait)) if sign.lasts == Span(0) => Some(*wait),
            _ => None,
        };
        if let Some(wait) = signs.iter().zip(&waits).filter_map(untold).max() {
            self.wire.pause(wait.0).await;
            let stops = signs.iter().zip(&waits).filter(|pair| untold(*pair).is_some());
            // If that fails it ends by itself for those who watch.
            let _ = self.sign(stops.map(|(sign, _)| (sign, Signing::LookAgain))).await;
        }
        Ok(waits.into_iter().map(|wait| wait.map(drop)).collect())
    }

    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        bounded(&conversations)?;
        let now = self.now().await?;
        let mut batch = Batch::with_capacity(conversations.len(), conversations.len());
        for conversation in &conversations {
            batch.add("", |to| self.keys.typists(to, conversation.as_str()));
        }
        self.look_on_the_way(&mut batch, now);
        let replies = self.run(&batch).await;
        let typists = replies.items().map(|item| self.read(decode_typists(item?.iter().flat_map(pieces), now.time())));
        Ok(typists.collect())
    }
}

impl<W: Wire> Platform<W> {
    /// Leaves signs, or looks at them again; after how long to look at each once more.
    async fn sign<'a>(
        &self,
        signs: impl Iterator<Item = (&'a TypingSignal, Signing)>,
    ) -> Result<Vec<Result<Option<Span>, Error>>, Error> {
        let now = self.now().await?;
        let mut batch = Batch::default();
        for (sign, signing) in signs {
            let place = (sign.conversation.as_str(), sign.user.as_str());
            batch.add(place.0, |to| self.keys.sign(to, place, signing, now.time(), Publishing::Plain));
        }
        self.look_on_the_way(&mut batch, now);
        let replies = self.run(&batch).await;
        Ok(replies.items().map(|item| self.read(decode_wait(piece(item?)))).collect())
    }
}
