//! A connection that all calls of an instance share, where the platform gives connections as a whole.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::lock::Mutex;

/// One connection, made by whoever needs it first and kept until somebody lets go of it.
pub struct Kept<C, E> {
    current: RefCell<Option<Rc<C>>>,
    /// Held by whoever makes one; the others wait for what comes of it.
    making: Mutex<()>,
    tries: Cell<u64>,
    failure: RefCell<Option<E>>,
}

impl<C, E: Clone> Kept<C, E> {
    /// None yet.
    pub const fn new() -> Self {
        Self { current: RefCell::new(None), making: Mutex::new(()), tries: Cell::new(0), failure: RefCell::new(None) }
    }

    /// The one in use, or a new one.
    pub async fn get(&self, make: impl Future<Output = Result<C, E>>) -> Result<Rc<C>, E> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let before = self.tries.get();
        let _one_at_a_time = self.making.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        // Whoever waited while another tried in vain has waited long enough.
        if let (true, Some(failure)) = (self.tries.get() != before, self.failure.borrow().clone()) {
            return Err(failure);
        }
        let made = make.await;
        self.tries.set(self.tries.get() + 1);
        self.failure.replace(made.as_ref().err().cloned());
        let made = Rc::new(made?);
        self.current.replace(Some(Rc::clone(&made)));
        Ok(made)
    }

    /// Lets go of one that failed, unless another took its place.
    pub fn let_go(&self, failed: &Rc<C>) {
        if self.current().is_some_and(|current| Rc::ptr_eq(&current, failed)) {
            self.current.take();
        }
    }

    fn current(&self) -> Option<Rc<C>> {
        self.current.borrow().clone()
    }
}

impl<C, E: Clone> Default for Kept<C, E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures::executor::block_on;
    use futures::future::{join, pending};
    use futures::poll;
    use futures::task::Poll;

    use super::*;

    type Numbered = Kept<u32, &'static str>;

    #[test]
    fn one_is_made_and_kept_until_it_is_let_go() {
        let kept = Numbered::new();
        let first = block_on(kept.get(ready(Ok(1))));
        assert_eq!(block_on(kept.get(ready(Ok(2)))), first);
        let first = first.unwrap_or_default();
        kept.let_go(&first);
        assert_eq!(block_on(kept.get(ready(Ok(3)))).as_deref(), Ok(&3));
        kept.let_go(&first);
        assert_eq!(block_on(kept.get(ready(Ok(4)))).as_deref(), Ok(&3), "another took its place");
    }

    #[test]
    fn those_who_wait_share_what_comes_of_it() {
        let kept = Numbered::new();
        let (asking, told) = futures::channel::oneshot::channel();
        let slow = async { told.await.unwrap_or(Err("nobody")) };
        let (first, second) = block_on(async {
            let both = join(kept.get(slow), kept.get(ready(Ok(2))));
            let mut both = std::pin::pin!(both);
            assert_eq!(poll!(&mut both), Poll::Pending);
            assert_eq!(asking.send(Err("away")), Ok(()));
            both.await
        });
        assert_eq!((first, second), (Err("away"), Err("away")));
        assert_eq!(block_on(kept.get(ready(Ok(3)))).as_deref(), Ok(&3));
    }

    #[test]
    fn one_who_gives_up_lets_the_next_try() {
        let kept = Numbered::new();
        block_on(async {
            assert_eq!(poll!(std::pin::pin!(kept.get(pending()))), Poll::Pending);
        });
        assert_eq!(block_on(kept.get(ready(Ok(2)))).as_deref(), Ok(&2));
    }
}
