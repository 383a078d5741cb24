//! Serves bookmarks, and adds those who may see them.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use flatpath::Server;
use flatpath_example_bookmarks::database::Database;
use flatpath_example_bookmarks::{ITERATIONS, hash, service};
use flatpath_http::Http;

/// Bookmarks of a team
#[derive(Parser)]
struct Arguments {
    /// The database
    #[arg(long, default_value = "bookmarks.db")]
    database: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer requests until the process is asked to end, and those that have begun even then
    Serve {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
        /// The directory of the page
        #[arg(long, default_value = "public")]
        public: PathBuf,
        /// What sessions are signed with: 32 random bytes or more
        #[arg(long, env = "BOOKMARKS_SECRET", hide_env_values = true)]
        secret: String,
    },
    /// Add a user, or change a password, which is read from standard input
    SetPassword {
        /// Who signs in
        name: String,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let Arguments { database, command } = Arguments::parse();
    let database = Database::open(database)?;
    match command {
        Command::Serve {
            listen,
            public,
            secret,
        } => {
            let service = Http::service(service(database, secret.as_bytes(), &public)?);
            Server::new().listen(listen, service).run()?;
        }
        Command::SetPassword { name } => {
            let password = io::read_to_string(io::stdin())?;
            database.put_user(&name, &hash(password.trim_end(), ITERATIONS)?)?;
        }
    }
    Ok(())
}
