//! Introducing two parties to each other, and parting them: the callbacks and their order.
//!
//! | step      | connect                                     | disconnect              |
//! |-----------|---------------------------------------------|-------------------------|
//! | 1         | producer `stop`, consumer `stop`            | the same                |
//! | 2         | producer `add_consumer`                     | consumer `del_producer` |
//! | 3         | consumer `add_producer`; else `del_consumer`| producer `del_consumer` |
//! | 4, always | consumer `start`, producer `start`          | the same                |
//!
//! "Always" includes failures and panics. A panic in the middle of connecting is undone like a
//! failure and passed on; after one in the middle of parting the other side is still
//! notified.

/// A producer of events that may feed a consumer directly. Every callback may be left out.
pub trait Producer<C: ?Sized> {
    /// Why it refuses a consumer.
    type Error;

    /// From now on the consumer is fed directly.
    ///
    /// # Errors
    /// If that is impossible. Then the pair is not connected and the newcomer not registered.
    fn add_consumer(&self, consumer: &C) -> Result<(), Self::Error> {
        let _ = consumer;
        Ok(())
    }

    /// Undoes [`Producer::add_consumer`].
    fn del_consumer(&self, consumer: &C) {
        let _ = consumer;
    }

    /// Holds events back while its peer comes or goes.
    fn stop(&self) {}

    /// Continues after [`Producer::stop`].
    fn start(&self) {}
}

/// A consumer of events that may be fed by a producer directly. Every callback may be left out.
pub trait Consumer<P: ?Sized> {
    /// Why it refuses a producer; the same type as the producer's.
    type Error;

    /// From now on the producer feeds this consumer directly.
    ///
    /// # Errors
    /// If that is impossible. Then the pair is not connected and the newcomer not registered.
    fn add_producer(&self, producer: &P) -> Result<(), Self::Error> {
        let _ = producer;
        Ok(())
    }

    /// Undoes [`Consumer::add_producer`].
    fn del_producer(&self, producer: &P) {
        let _ = producer;
    }

    /// Holds events back while its peer comes or goes.
    fn stop(&self) {}

    /// Continues after [`Consumer::stop`].
    fn start(&self) {}
}

/// Connects the two, or leaves them as they were.
pub(super) fn connect<P, C>(producer: &P, consumer: &C) -> Result<(), P::Error>
where
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    let _starts = stop_both(producer, consumer);
    producer.add_consumer(consumer)?;
    let undo = Always(Some(|| producer.del_consumer(consumer)));
    consumer.add_producer(producer)?;
    undo.cancel();
    Ok(())
}

/// Parts the two.
pub(super) fn disconnect<P, C>(producer: &P, consumer: &C)
where
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    let _starts = stop_both(producer, consumer);
    let _then = Always(Some(|| producer.del_consumer(consumer)));
    consumer.del_producer(producer);
}

/// Stops both; starts them again, the consumer first, when the result is dropped.
fn stop_both<'a, P, C>(producer: &'a P, consumer: &'a C) -> impl Sized + 'a
where
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    producer.stop();
    let start_producer = Always(Some(|| producer.start()));
    consumer.stop();
    let start_consumer = Always(Some(|| consumer.start()));
    // Dropped in this order.
    (start_consumer, start_producer)
}

/// Calls its function when it is dropped, unless cancelled.
struct Always<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Always<F> {
    fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Always<F> {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            function();
        }
    }
}
