//! Settings that have few values.

use clap::ValueEnum;

/// A setting with few values: each is its help, its variant and its word.
macro_rules! values {
    (
        $(#[$about:meta])*
        $name:ident { $(#[doc = $help:literal] $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $(#[doc = $help] $variant,)+
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let (word, help) = match self {
                    $(Self::$variant => ($word, $help),)+
                };
                Some(clap::builder::PossibleValue::new(word).help(help.trim_start()))
            }
        }
    };
}
values! {
    /// What a listener speaks.
    ListenerProtocol {
        /// HTTP/1.1
        Http = "http",
        /// NFSv3
        Nfs = "nfs",
        /// What it receives, back
        Echo = "echo",
        /// The magic-wormhole transit relay
        Relay = "relay",
        /// Messages with their length in front
        Ingest = "ingest",
    }
}

impl ListenerProtocol {
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }
}

values! {
    /// The values of `--driver`.
    Driver {
        /// io_uring where it works, epoll where it is refused
        Auto = "auto",
        /// io_uring or nothing
        Uring = "uring",
        /// epoll
        Epoll = "epoll",
    }
}

values! {
    /// The values of `--tls-client-auth`.
    ClientAuth {
        /// A client without a certificate is refused
        Required = "required",
        /// A client may have none; one that does not hold is refused
        Optional = "optional",
    }
}

values! {
    /// The values of `--nfs-tls`.
    NfsTls {
        /// Calls without TLS are refused
        Required = "required",
        /// Clients begin it, or do not
        Offered = "offered",
    }
}

values! {
    /// The values of `--etag`.
    Etag {
        /// Changes with every modification; differs between copies
        Exact = "exact",
        /// Copies with the same size and time have the same
        Portable = "portable",
    }
}

values! {
    /// The values of `--listing`.
    Listing {
        /// A page; JSON for clients that want it
        On = "on",
        /// 404
        Off = "off",
        /// JSON
        Json = "json",
    }
}

values! {
    /// The values of `--archive`.
    Archive {
        /// As GNU tar writes it
        Tar = "tar",
        /// Stored, not compressed
        Zip = "zip",
    }
}

values! {
    /// The values of `--compress`.
    Compress {
        /// Zstandard
        Zstd = "zstd",
        /// Brotli
        Br = "br",
        /// What every client takes
        Gzip = "gzip",
        /// None, and no other beside it
        Off = "off",
    }
}

values! {
    /// The values of `--access-log-format`.
    LogFormat {
        /// As Apache and nginx write it
        Combined = "combined",
        /// An object on each line
        Json = "json",
    }
}

values! {
    /// How requests are spread over the servers of a proxy.
    ProxyBalance {
        /// Of two at random the one that has fewer requests
        LeastOfTwo = "least-of-two",
        /// Each in turn
        RoundRobin = "round-robin",
        /// The same one for the same client, by its address
        ClientHash = "client-hash",
    }
}
values! {
    /// What the servers of a proxy are told of clients.
    ProxyForwarded {
        /// What is known here, and nothing that the client says
        New = "new",
        /// What the client says, and what is known here after it
        Append = "append",
        /// Nothing
        None = "none",
    }
}
values! {
    /// The values of `--forwarded-header`.
    ForwardedHeader {
        /// Addresses in a list
        XForwardedFor = "x-forwarded-for",
        /// As RFC 7239 has it
        Forwarded = "forwarded",
    }
}

values! {
    /// The values of `--accept`.
    Accept {
        /// One accept serves every connection
        Multishot = "multishot",
        /// One accept per connection
        Single = "single",
    }
}
