//! Looks up the addresses of host names.
//!
//! The system's resolver is asked (`getaddrinfo`), so `/etc/hosts`, `search`, `ndots` and all else
//! that the machine configures holds. It blocks its thread, for ten seconds and more if no name
//! server answers, and nothing can cancel it.
//!
//! # Invariants
//!
//! - Each lookup has a thread of its own. No other work waits for one, such as the files and bodies
//!   that blocking threads of the runtime read.
//! - A name is looked up once at a time. Further callers wait for that result.
//! - Each [`Dns`] runs at most a fixed number of lookups. One counts until it ends, even if its
//!   callers have gone. Redis, configured services and hosts of callers each have a [`Dns`], so
//!   none of them can use up the places of another.
//! - While lookups of a name fail or take long, its last addresses are used, for at most an hour.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

/// For how long addresses may be used after they were looked up. It covers most outages of name
/// servers. A longer time would call more addresses that somebody else has by then.
const KEPT: Duration = Duration::from_secs(3600);
/// How long a lookup may take before the last addresses are used. Shorter than the shortest
/// time for a connection to a sentinel by default, a third of `store.redis.timeout`.
const PATIENCE: Duration = Duration::from_millis(100);
/// At this number of names, those are forgotten that nobody looks up at the moment.
const MANY_NAMES: usize = 4_096;

type Resolver = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
type Addresses = Arc<[SocketAddr]>;
type FoundAddresses = Result<Addresses, Arc<io::Error>>;

/// Looks up names. Clones share their lookups and places.
#[derive(Clone)]
pub struct Dns(Arc<Inner>);

struct Inner {
    look_up: Box<Resolver>,
    /// A lookup holds a permit until it ends.
    places: Arc<Semaphore>,
    names: Mutex<KnownNames>,
}

struct KnownNames {
    names: HashMap<String, Name>,
    /// The number of names at which unused ones are forgotten.
    forget_at: usize,
}

/// What is known of a name.
#[derive(Default)]
struct Name {
    lookup: Option<Arc<Lookup>>,
    last: Option<Last>,
}

/// The last addresses of a name.
struct Last {
    addresses: Addresses,
    /// When their lookup was asked for.
    since: Instant,
}

/// A lookup that runs, or waits for a place.
struct Lookup {
    since: Instant,
    has_begun: AtomicBool,
    found: watch::Sender<Option<FoundAddresses>>,
}

impl Dns {
    /// Asks the system's resolver, with at most `places` lookups at a time.
    pub fn new(places: usize) -> Self {
        Self::asking(places, |name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    /// Asks another resolver, which may block.
    pub(crate) fn asking(
        places: usize,
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let names = KnownNames { names: HashMap::new(), forget_at: MANY_NAMES };
        Self(Arc::new(Inner {
            look_up: Box::new(look_up),
            places: Arc::new(Semaphore::new(places)),
            names: Mutex::new(names),
        }))
    }

    /// The addresses of a host, at least one. An IP address needs no lookup.
    ///
    /// It has no timeout: without last addresses, it takes as long as the resolver and the wait for
    /// a place.
    ///
    /// # Errors
    /// Those of the resolver.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (lookup, last) = self.join(host);
        let found = match last {
            None => self.found(host, &lookup).await,
            Some(last) => {
                let in_time = timeout_at(lookup.since + PATIENCE, self.found(host, &lookup)).await;
                Ok(in_time.ok().and_then(Result::ok).unwrap_or(last))
            }
        };
        let found = found.map_err(|error| io::Error::new(error.kind(), error))?;
        Ok(found.iter().map(|found| with_port(*found, port)).collect())
    }

    /// The lookup of the name, and its last addresses if they may still be used.
    fn join(&self, name: &str) -> (Arc<Lookup>, Option<Addresses>) {
        let mut names = self.names();
        if !names.names.contains_key(name) {
            names.make_room();
            names.names.insert(name.to_owned(), Name::default());
        }
        let known = names.names.get_mut(name).expect("it was inserted");
        // One whose callers have all gone while it waited for a place is as old as they are.
        let lookup = known.lookup.take().filter(Lookup::is_used).unwrap_or_default();
        known.lookup = Some(lookup.clone());
        let is_young = |last: &&Last| last.since.elapsed() <= KEPT;
        let last = known.last.as_ref().filter(is_young).map(|last| last.addresses.clone());
        (lookup, last)
    }

    /// The result of the lookup. Begins it if it gets a place first.
    async fn found(&self, name: &str, lookup: &Arc<Lookup>) -> FoundAddresses {
        let mut result = lookup.found.subscribe();
        tokio::select! {
            biased;
            _ = result.wait_for(Option::is_some) => {}
            place = self.0.places.clone().acquire_owned() => {
                self.begin(name, lookup, place.expect("the semaphore is never closed"));
            }
        }
        let found = result.wait_for(Option::is_some).await.expect("the lookup has the sender");
        found.clone().expect("it was waited for")
    }

    fn begin(&self, name: &str, lookup: &Arc<Lookup>, place: OwnedSemaphorePermit) {
        if lookup.has_begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let (dns, of, running) = (self.clone(), name.to_owned(), lookup.clone());
        let run = move || {
            let found = (dns.0.look_up)(&of);
            drop(place);
            dns.ended(&of, &running, found);
        };
        if let Err(error) = thread::Builder::new().name("lookup".into()).spawn(run) {
            self.ended(name, lookup, Err(error));
        }
    }

    fn ended(&self, name: &str, lookup: &Lookup, found: io::Result<Vec<SocketAddr>>) {
        let found = match found {
            Ok(found) if found.is_empty() => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
            }
            found => found,
        };
        let found: FoundAddresses = found.map(Addresses::from).map_err(Arc::new);
        let mut names = self.names();
        if let Some(known) = names.names.get_mut(name) {
            known.lookup = None;
            if let Ok(addresses) = &found {
                known.last = Some(Last { addresses: addresses.clone(), since: lookup.since });
            } else if known.last.is_none() {
                names.names.remove(name);
            }
        }
        drop(names);
        lookup.found.send_replace(Some(found));
    }

    fn names(&self) -> MutexGuard<'_, KnownNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns").finish_non_exhaustive()
    }
}

impl KnownNames {
    /// Forgets unused names if there are many. The next time is when their number has doubled, so
    /// that a new name costs little on average.
    fn make_room(&mut self) {
        if self.names.len() < self.forget_at {
            return;
        }
        self.names.retain(|_, name| name.lookup.as_ref().is_some_and(Lookup::is_used));
        self.forget_at = MANY_NAMES.max(2 * self.names.len());
    }
}

impl Lookup {
    /// Whether it runs, or somebody waits for it. Only for the lookup that a name has.
    fn is_used(self: &Arc<Self>) -> bool {
        self.has_begun.load(Ordering::Acquire) || Arc::strong_count(self) > 1
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            has_begun: AtomicBool::new(false),
            found: watch::Sender::new(None),
        }
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 7], 80);

    fn found() -> io::Result<Vec<SocketAddr>> {
        Ok(vec![([10, 0, 0, 7], 0).into()])
    }

    fn is_found(found: io::Result<Vec<SocketAddr>>) -> bool {
        found.unwrap() == [SocketAddr::from(ADDRESS)]
    }

    /// Returns when the resolver gets permission to answer, once for each lookup.
    fn on_permission(places: usize) -> (Dns, Arc<AtomicUsize>, mpsc::Sender<()>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (permit, permitted) = mpsc::channel();
        let (count, permitted) = (asked.clone(), Mutex::new(permitted));
        let dns = Dns::asking(places, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = permitted.lock().unwrap().recv();
            found()
        });
        (dns, asked, permit)
    }

    #[tokio::test]
    async fn callers_of_one_name_wait_for_one_lookup() {
        let (dns, asked, permit) = on_permission(8);
        let mut all = Box::pin(join_all((0..64).map(|_| dns.look_up("a.example", 80))));
        assert!(poll!(&mut all).is_pending());
        permit.send(()).unwrap();
        assert!(all.await.into_iter().all(is_found));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    /// A caller that gave up freed the place of its lookup. So dead names used any number of
    /// threads.
    #[tokio::test]
    async fn a_lookup_has_its_place_until_it_ends() {
        let (dns, asked, permit) = on_permission(1);
        let mut first = Box::pin(dns.look_up("a.example", 80));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        let mut second = Box::pin(dns.look_up("b.example", 80));
        assert!(poll!(&mut second).is_pending());
        assert_eq!(dns.0.places.available_permits(), 0);
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        assert!(is_found(second.await));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    /// The wait of a caller that gave up is not the next one's.
    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_the_queue() {
        let (dns, asked, permit) = on_permission(1);
        let mut first = Box::pin(dns.look_up("a.example", 80));
        assert!(poll!(&mut first).is_pending());
        for name in 0..MANY_NAMES + 1 {
            let name = format!("{name}.example");
            let mut gone = Box::pin(dns.look_up(&name, 80));
            assert!(poll!(&mut gone).is_pending());
        }
        assert!(dns.names().names.len() < 10, "names that nobody waits for are forgotten");
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        assert!(is_found(first.await));
        assert!(is_found(dns.look_up("1.example", 80).await));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_addresses_are_used_for_a_time_while_the_resolver_fails_or_is_silent() {
        let (permit, permitted) = mpsc::channel::<io::Result<Vec<SocketAddr>>>();
        let permitted = Mutex::new(permitted);
        let dns = Dns::asking(8, move |_| permitted.lock().unwrap().recv().unwrap());
        let failed = || Err(io::Error::other("no answer"));
        permit.send(found()).unwrap();
        assert!(is_found(dns.look_up("a.example", 80).await));
        permit.send(failed()).unwrap();
        assert!(is_found(dns.look_up("a.example", 80).await), "the resolver fails");
        assert!(is_found(dns.look_up("a.example", 80).await), "the resolver is silent");
        tokio::time::advance(KEPT + PATIENCE).await;
        // For the lookup that is silent, if there is one, and for another.
        permit.send(failed()).unwrap();
        permit.send(failed()).unwrap();
        assert_eq!(dns.look_up("a.example", 80).await.unwrap_err().to_string(), "no answer");
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let dns = Dns::asking(0, |_| unreachable!());
        for text in ["10.0.0.7", "::1"] {
            let address = SocketAddr::new(text.parse().unwrap(), 80);
            assert_eq!(dns.look_up(text, 80).await.unwrap(), [address]);
        }
    }

    #[tokio::test]
    async fn the_system_knows_this_machine() {
        let found = Dns::new(1).look_up("localhost", 80).await.unwrap();
        assert!(found.iter().all(|found| found.ip().is_loopback() && found.port() == 80));
    }
}
