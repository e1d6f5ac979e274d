//! One connection shared by all calls of an instance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::lock::Mutex;

/// One connection, opened by the first call that needs it and shared until a call gives it up.
pub struct SharedConnection<C, E> {
    current: RefCell<Option<Rc<C>>>,
    /// Held while a connection is opened; other callers wait for the result.
    making: Mutex<()>,
    tries: Cell<u64>,
    failure: RefCell<Option<E>>,
}

impl<C, E: Clone> SharedConnection<C, E> {
    /// Not connected yet.
    pub const fn new() -> Self {
        Self { current: RefCell::new(None), making: Mutex::new(()), tries: Cell::new(0), failure: RefCell::new(None) }
    }

    /// The current connection, or a new one.
    pub async fn get(&self, make: impl Future<Output = Result<C, E>>) -> Result<Rc<C>, E> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let before = self.tries.get();
        let _one_at_a_time = self.making.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        // A caller that waited for a failed attempt gets its failure instead of trying again.
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

    /// Discards a connection that failed, unless it was replaced already.
    pub fn discard(&self, failed: &Rc<C>) {
        if self.current().is_some_and(|current| Rc::ptr_eq(&current, failed)) {
            self.current.take();
        }
    }

    fn current(&self) -> Option<Rc<C>> {
        self.current.borrow().clone()
    }
}

impl<C, E: Clone> Default for SharedConnection<C, E> {
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

    type Numbered = SharedConnection<u32, &'static str>;

    #[test]
    fn connection_is_kept_until_discarded() {
        let shared = Numbered::new();
        let first = block_on(shared.get(ready(Ok(1))));
        assert_eq!(block_on(shared.get(ready(Ok(2)))), first);
        let first = first.unwrap_or_default();
        shared.discard(&first);
        assert_eq!(block_on(shared.get(ready(Ok(3)))).as_deref(), Ok(&3));
        shared.discard(&first);
        assert_eq!(block_on(shared.get(ready(Ok(4)))).as_deref(), Ok(&3), "it was replaced");
    }

    #[test]
    fn waiting_callers_share_the_result() {
        let shared = Numbered::new();
        let (answer, answered) = futures::channel::oneshot::channel();
        let slow = async { answered.await.unwrap_or(Err("nobody")) };
        let (first, second) = block_on(async {
            let both = join(shared.get(slow), shared.get(ready(Ok(2))));
            let mut both = std::pin::pin!(both);
            assert_eq!(poll!(&mut both), Poll::Pending);
            assert_eq!(answer.send(Err("down")), Ok(()));
            both.await
        });
        assert_eq!((first, second), (Err("down"), Err("down")));
        assert_eq!(block_on(shared.get(ready(Ok(3)))).as_deref(), Ok(&3));
    }

    #[test]
    fn cancelled_attempt_lets_the_next_try() {
        let shared = Numbered::new();
        block_on(async {
            assert_eq!(poll!(std::pin::pin!(shared.get(pending()))), Poll::Pending);
        });
        assert_eq!(block_on(shared.get(ready(Ok(2)))).as_deref(), Ok(&2));
    }
}
