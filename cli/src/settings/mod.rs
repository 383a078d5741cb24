//! The settings of `serve`: each is one entry of [`entries`], which owns all that is known of it.
//!
//! An entry has the name, the help, the type and the parser of a setting, which `[[listener]]`
//! tables may set it, what it bounds in a running server, and what it needs to have an effect. The
//! command line, the environment, the file, `check`, the reload and the warnings about settings
//! without effect walk [`SETTINGS`]; none of them names one. A value is read by the parser of its
//! entry wherever it stands, so values and errors are the same everywhere.

use std::fmt;
use std::sync::LazyLock;

use clap::builder::{Resettable, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error};
use flatpath::{Limits, ListenerLimits};

/// Makes the fields of [`Settings`] and the list [`SETTINGS`] from one list of entries. (Deriving
/// the arguments would build six crates more.)
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $definition:expr;)+) => {
        /// The settings of `serve`; `None` or empty where neither place names one.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Settings {
            $($(#[doc = $help])+ pub(crate) $name: $type,)+
        }

        /// All settings, in the order of the entries.
        pub(crate) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| vec![$(
            Setting::new(
                stringify!($name),
                concat!($($help),+).trim_start(),
                $definition,
                |settings| &settings.$name,
                |settings| &mut settings.$name,
            ),
        )+]);
    };
}

use crate::built::{BuiltWith, Feature};

mod values;
mod field;
mod entries;
mod order;

pub(crate) use entries::{SETTINGS, Settings};
use field::{Field, FieldOf, Holder};
pub(crate) use values::{
    Accept, Archive, ClientAuth, Compress, Driver, Etag, ForwardedHeader, ListenerProtocol,
    Listing, LogFormat, NfsTls, ProxyBalance, ProxyForwarded,
};

/// The part of a file that a setting is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    AboveTables,
    /// A table `[[listener]]`.
    Table,
    /// A table `[[site]]`.
    Site,
}

/// What a setting needs in addition to a listener that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// A listener whose clients may change files.
    Writable,
}

/// The facts of a setting that do not depend on its type.
struct Facts {
    /// The listeners that look at it, whose tables may set it. None: it is the process's.
    listeners: &'static [ListenerProtocol],
    /// A table has what stands above it, where it does not set it itself.
    is_inherited: bool,
    /// A reload takes it over, though it is no limit.
    is_reloaded: bool,
    /// The same in a table.
    is_reloaded_in_tables: bool,
    /// A table `[[site]]` may set it.
    is_of_sites: bool,
    /// The key of a table `[[site]]` that says there what this says of a listener.
    key_in_sites: Option<&'static str>,
    /// Every command has it, not `serve` alone.
    is_of_all_commands: bool,
    needs: Need,
}

/// A limit of the server, and one of a listener.
type ServerLimit<T> = fn(&mut Limits) -> &mut T;
type ListenerLimit<T> = fn(&mut ListenerLimits) -> &mut Option<T>;

/// An entry, until the macro gives it its name and its field.
struct Definition<P: TypedValueParser> {
    argument: Arg,
    parser: P,
    facts: Facts,
    server_limit: Option<ServerLimit<P::Value>>,
    listener_limit: Option<ListenerLimit<P::Value>>,
    alone: Option<Alone<P::Value>>,
}

/// The word of a value that excludes others in its list, and which value that is.
type Alone<T> = (&'static str, fn(&T) -> bool);

impl<P: TypedValueParser> Definition<P> {
    fn new(argument: Arg, parser: P) -> Self {
        Self {
            argument,
            parser,
            facts: Facts {
                listeners: &[],
                is_inherited: true,
                is_reloaded: false,
                is_reloaded_in_tables: false,
                is_of_sites: false,
                key_in_sites: None,
                is_of_all_commands: false,
                needs: Need::Nothing,
            },
            server_limit: None,
            listener_limit: None,
            alone: None,
        }
    }

    /// Only a build with this feature takes it; another says how to get one.
    fn built_with(self, feature: Feature) -> Definition<BuiltWith<P>> {
        Definition {
            argument: self.argument,
            parser: BuiltWith {
                feature,
                parser: self.parser,
            },
            facts: self.facts,
            server_limit: self.server_limit,
            listener_limit: self.listener_limit,
            alone: self.alone,
        }
    }

    /// This value of a list stands for none of the others, and so is refused beside them.
    fn alone(mut self, word: &'static str, is_it: fn(&P::Value) -> bool) -> Self {
        self.alone = Some((word, is_it));
        self
    }

    /// `serve -h` leaves it out, and `serve --help` has it.
    fn advanced(mut self) -> Self {
        self.argument = self.argument.hide_short_help(true);
        self
    }

    /// Another server's name for it, long and short.
    fn known_as(mut self, long: &'static str, short: char) -> Self {
        self.argument = self.argument.alias(long).short_alias(short);
        self
    }

    /// Listeners of these protocols look at it, and their tables may set it.
    fn of(mut self, listeners: &'static [ListenerProtocol]) -> Self {
        self.facts.listeners = listeners;
        self
    }

    /// It bounds the whole server above the tables, and one listener in a table: a table does not
    /// inherit it.
    fn bounding(mut self) -> Self {
        self.facts.is_inherited = false;
        self
    }

    /// Above the tables it is for the listeners that flags name; a table does not inherit it.
    fn not_inherited(mut self) -> Self {
        self.facts.is_inherited = false;
        self
    }

    /// Nothing looks at it where clients only read.
    fn for_writing(mut self) -> Self {
        self.facts.needs = Need::Writable;
        self
    }

    /// It sets this limit of the server, which may change while it runs: a reload takes it over.
    fn server_limit(mut self, limit: ServerLimit<P::Value>) -> Self {
        self.server_limit = Some(limit);
        self
    }

    /// In a table it sets this limit of the listener, likewise.
    fn listener_limit(mut self, limit: ListenerLimit<P::Value>) -> Self {
        self.listener_limit = Some(limit);
        self
    }

    /// A reload takes it over ([`Reload`](crate::reload::Reload) says how).
    fn reloaded(mut self) -> Self {
        self.facts.is_reloaded = true;
        self
    }

    /// The same in tables.
    fn reloaded_everywhere(mut self) -> Self {
        self.facts.is_reloaded_in_tables = true;
        self.reloaded()
    }

    /// It is for the files of a site: a table `[[site]]` may set it, and has otherwise what its
    /// listener has.
    fn of_sites(mut self) -> Self {
        self.facts.is_of_sites = true;
        self
    }

    /// It cannot differ by site, and a site has this key in its place.
    fn in_sites(mut self, key: &'static str) -> Self {
        self.facts.key_in_sites = Some(key);
        self
    }

    /// Every command has it.
    fn of_all_commands(mut self) -> Self {
        self.facts.is_of_all_commands = true;
        self
    }
}

/// One setting.
pub(crate) struct Setting {
    /// Of its argument, and its field.
    id: &'static str,
    name: String,
    argument: Arg,
    facts: Facts,
    has_server_limit: bool,
    has_listener_limit: bool,
    field: Box<dyn Field>,
}

impl Setting {
    fn new<P, H>(
        id: &'static str,
        help: &'static str,
        definition: Definition<P>,
        read: fn(&Settings) -> &H,
        write: fn(&mut Settings) -> &mut H,
    ) -> Self
    where
        P: TypedValueParser<Value: 'static>,
        H: Holder<P::Value>,
    {
        let name = id.replace('_', "-");
        let Definition {
            argument,
            parser,
            facts,
            server_limit,
            listener_limit,
            alone,
        } = definition;
        let argument = argument.id(id).help(help).value_parser(parser.clone());
        let argument = match H::IS_LIST {
            true => argument.action(ArgAction::Append).value_delimiter(','),
            false => argument,
        };
        let argument = match argument.get_help_heading() {
            // Without a topic it has its place alone.
            None => argument,
            Some(_) => argument.long(name.clone()),
        };
        let (has_server_limit, has_listener_limit) =
            (server_limit.is_some(), listener_limit.is_some());
        let field = FieldOf {
            parser,
            read,
            write,
            server_limit,
            listener_limit,
            alone,
        };
        let field = Box::new(field);
        let mut setting = Self {
            id,
            name,
            argument,
            facts,
            has_server_limit,
            has_listener_limit,
            field,
        };
        let tables = setting.tables();
        if !tables.is_empty() {
            // In the manual page, and in `serve --help`.
            let long = format!("{help}\n[tables: {}]", tables.join(", "));
            setting.argument = setting.argument.long_help(long);
        }
        setting
    }

    /// The setting that a file or a flag calls so.
    pub(crate) fn named(name: &str) -> Option<&'static Setting> {
        let is_alias = |it: &Setting| {
            let others = it.argument.get_all_aliases().unwrap_or_default();
            others.contains(&name)
        };
        SETTINGS.iter().find(|it| it.name == name || is_alias(it))
    }

    /// As the file has it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Of its argument.
    pub(crate) fn id(&self) -> &'static str {
        self.id
    }

    /// As its argument is written: `--name`.
    pub(crate) fn flag(&self) -> String {
        match self.argument.get_long() {
            Some(name) => format!("--{name}"),
            None => self.name.to_uppercase(),
        }
    }

    /// Its argument on the command line.
    pub(crate) fn argument(&self) -> Arg {
        self.argument.clone()
    }

    /// Its heading in the help.
    pub(crate) fn topic(&self) -> Option<&str> {
        self.argument.get_help_heading()
    }

    /// The default, as its help states it.
    pub(crate) fn default_text(&self) -> Option<String> {
        let help = self.argument.get_help()?.to_string();
        let (_, default) = help.split_once("[default: ")?;
        default
            .split_once(']')
            .map(|(default, _)| default.to_owned())
    }

    /// The listeners whose tables may set it; nothing else looks at it. None: the process does.
    pub(crate) fn listeners(&self) -> &'static [ListenerProtocol] {
        self.facts.listeners
    }

    /// Whether a table `[[site]]` may set it.
    pub(crate) fn is_of_sites(&self) -> bool {
        self.facts.is_of_sites
    }

    /// The key of a table `[[site]]` that says there what this says of a listener.
    pub(crate) fn key_in_sites(&self) -> Option<&'static str> {
        self.facts.key_in_sites
    }

    /// The tables of a file that may set it, beside what stands above all: by which it can differ.
    fn tables(&self) -> Vec<String> {
        let mut tables = Vec::new();
        match self.facts.listeners {
            [] => {}
            all if all.len() == ListenerProtocol::ALL.len() => tables.push("[[listener]]".into()),
            some => {
                let names: Vec<_> = some.iter().map(|it| it.name()).collect();
                tables.push(format!("[[listener]] for {}", names.join(" or ")));
            }
        }
        if self.facts.is_of_sites {
            tables.push("[[site]]".into());
        }
        tables
    }

    /// Where it may stand in a file, in words.
    pub(crate) fn stands(&self) -> String {
        let tables = self.tables();
        let places = tables.iter().map(|table| format!(", in a {table}"));
        format!("above the tables{}", places.collect::<String>())
    }

    /// Whether a table has what stands above it, where it does not set it itself.
    pub(crate) fn is_inherited(&self) -> bool {
        self.facts.is_inherited
    }

    /// Whether only a listener whose clients may change files looks at it.
    pub(crate) fn is_for_writing(&self) -> bool {
        self.facts.needs == Need::Writable
    }

    /// Whether a reload takes over what stands there.
    pub(crate) fn is_reloaded(&self, part: Part) -> bool {
        match part {
            Part::AboveTables => self.has_server_limit || self.facts.is_reloaded,
            Part::Table => self.has_listener_limit || self.facts.is_reloaded_in_tables,
            // A reload replaces sites as they are.
            Part::Site => self.facts.is_of_sites,
        }
    }

    /// Whether the command line or the environment sets it.
    pub(crate) fn is_given(&self, matches: &ArgMatches) -> bool {
        matches!(
            matches.value_source(self.id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
    }

    /// Reads its values, each as the command line would have it.
    pub(crate) fn parse(&self, settings: &mut Settings, values: &[String]) -> Result<(), Error> {
        let mut arguments = LINE.get_arguments();
        let argument = arguments.find(|it| it.get_id() == self.id);
        self.field
            .parse(settings, argument.unwrap_or(&self.argument), values)
    }

    /// Replaces its value by that of other settings, if those have one.
    pub(crate) fn copy(&self, from: &Settings, to: &mut Settings) {
        self.field.copy(from, to);
    }

    /// Makes its value that of other settings, also where those have none.
    pub(crate) fn assign(&self, from: &Settings, to: &mut Settings) {
        self.field.assign(from, to);
    }

    /// Whether both mean the same by it: `30` and `"30s"` do.
    pub(crate) fn is_same(&self, one: &Settings, other: &Settings) -> bool {
        self.field.is_same(one, other)
    }
}

impl ListenerProtocol {
    /// Whether it looks at a setting, and its table may set it.
    pub(crate) fn takes(self, setting: &Setting) -> bool {
        setting.listeners().contains(&self)
    }
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Setting {}

impl fmt::Debug for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl Settings {
    /// Why the networks that may and may not exclude each other.
    pub(crate) fn networks_conflict(&self) -> Option<&'static str> {
        let is_both = self.allow.iter().any(|it| self.deny.contains(it));
        is_both.then_some("allow and deny name the same network: leave one of them out")
    }

    /// The command line with an argument for each, in the order of use.
    pub(crate) fn added_to(command: Command) -> Command {
        let own = SETTINGS.iter().filter(|it| !it.facts.is_of_all_commands);
        let ordered = order::of_use(own, |it| (it.topic(), it.name()));
        command.args(ordered.into_iter().map(Setting::argument))
    }

    /// These settings, without the ones that the command line sets.
    pub(crate) fn replaced_by(mut self, command_line: &ArgMatches) -> Self {
        for setting in SETTINGS.iter() {
            setting.field.take(setting.id, &mut self, command_line);
        }
        self
    }

    /// Why values of a list cannot stand together, with the flag that has them.
    pub(crate) fn conflict(&self) -> Option<String> {
        let mut conflicts = SETTINGS.iter().filter_map(|setting| {
            let why = setting.field.conflict(self)?;
            Some(format!("{} {why}", setting.flag()))
        });
        conflicts.next()
    }

    /// The limits that can change while the server runs; the others are the engine's own.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for setting in SETTINGS.iter() {
            setting.field.limit(self, &mut limits);
        }
        limits
    }

    /// The limits of a listener whose table has these settings.
    pub(crate) fn listener_limits(&self) -> ListenerLimits {
        let mut limits = ListenerLimits::default();
        for setting in SETTINGS.iter() {
            setting.field.limit_listener(self, &mut limits);
        }
        limits
    }
}

/// Whether a switch is on: unset it is not.
pub(crate) fn is_on(switch: Option<bool>) -> bool {
    switch.unwrap_or(false)
}

/// The place in the help of what every command has: before clap's own.
const COMMON_ORDER: usize = 900;

/// The arguments that every command has.
pub(crate) fn common_arguments() -> impl Iterator<Item = Arg> {
    let common = SETTINGS.iter().filter(|it| it.facts.is_of_all_commands);
    // After what a command has of its own, before the help.
    let ordered = common.map(|it| it.argument().display_order(COMMON_ORDER));
    ordered.map(|it| it.global(true).help_heading(Resettable::Reset))
}

/// Complete, so that its arguments can be shown.
static LINE: LazyLock<Command> = LazyLock::new(|| {
    let mut line = line();
    line.build();
    line
});

/// A command line of settings alone.
pub(crate) fn line() -> Command {
    let line = Command::new("flatpath").no_binary_name(true);
    line.disable_help_flag(true)
        .args(SETTINGS.iter().map(Setting::argument))
}

#[cfg(test)]
mod tests;
