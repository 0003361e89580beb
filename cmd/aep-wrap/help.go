package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandGroup is what --help lists under one title.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// addCommands gives root its commands, each in its group.
func addCommands(root *cobra.Command, groups []commandGroup) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	last := groups[len(groups)-1].id
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
	helpOfCommands(root)
}

// helpOfCommands has "help WORD" refuse what is no command: an agent's word
// would be answered with the help of the whole.
func helpOfCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil || help == root {
		return
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if len(args) == 0 || err == nil && cmd != root && len(rest) == 0 {
			return nil
		}
		word := strings.Join(args, " ")
		if near := nearCommands(root, args[0]); near != "" && (cmd == root || cmd == nil) {
			return usageError("help: there is no command %q; did you mean %s?", word, near)
		}
		return usageError("help: there is no command %q; see %s --help", word, root.CommandPath())
	}
}

// settingPart is some of the settings, as help lists them.
type settingPart struct {
	name, title string
	settings    []string
}

// settingParts are all settings that every command takes.
var settingParts = []settingPart{
	{"reach", "The collector:", []string{"collector", "token", "token-file", "ca-file", "client-cert", "client-key", "plain-http"}},
	{"own", "Your own collector, and the logs:", []string{"listen", "log-dir"}},
	{"say", "What events may say:", []string{"capture", "capture-for", "secret-env", "no-pii"}},
	{"agents", "The agent:", []string{"adapter", "attach", "dual", "agent"}},
	{"answers", "Answers and commands from elsewhere:", []string{"hold", "gate", "gate-rule", "allow", "deny", "answer-after", "senders"}},
	{"people", "Calling people:", []string{"notify", "notify-capture", "page-url"}},
	{"out", "Output:", []string{"json", "quiet"}},
}

// matters are the settings that matter to each command, by its path: settingParts, and
// settings by themselves. Every command takes all of them, so that what stands in
// the environment or in a script is no mistake.
var matters = map[string]string{
	"":                "capture capture-for secret-env collector token-file listen log-dir adapter agent hold gate people out",
	"run":             "reach own say agents answers people out",
	"acp":             "reach own say adapter agent answers people out",
	"demo":            "reach own say hold allow deny answer-after senders people out",
	"shell-init":      "",
	"ps":              "collector token-file log-dir out",
	"pending":         "collector token-file out",
	"tail":            "collector token-file listen out",
	"timeline":        "collector token-file log-dir out",
	"roster":          "collector token-file out",
	"link":            "collector token-file listen page-url out",
	"respond":         "collector token-file secret-env no-pii out",
	"instruct":        "collector token-file secret-env no-pii out",
	"cancel":          "collector token-file secret-env no-pii out",
	"pause":           "collector token-file out",
	"resume":          "collector token-file out",
	"watch":           "reach own say adapter agent hold gate allow deny answer-after senders people out",
	"serve":           "reach own say adapter agent hold gate allow deny answer-after senders people out",
	"hook-config":     "hold gate",
	"hook-dir-script": "",
	"hook":            "",
	"unpack":          "",
	"collect":         "token token-file listen log-dir people quiet",
	"sink":            "collector token-file listen out",
	"flush":           "reach own say out",
	"prune":           "log-dir out",
	"replay":          "collector token-file listen say out",
	"validate":        "out",
	"redact":          "secret-env no-pii out",
	"runtime":         "token token-file listen quiet",
	"attach":          "token token-file ca-file client-cert client-key plain-http own say agent hold allow deny answer-after senders people out",
	"doctor":          "reach own capture capture-for hold gate json",
	"adapters":        "json",
	"adapters show":   "json",
	"config":          "",
	"config check":    "out",
	"config show":     "out",
	"token":           "",
	"token new":       "quiet",
	"token show":      "token token-file collector listen quiet",
	"token rotate":    "quiet",
	"version":         "json",
}

// otherwise are settings that mean another thing to a command than to most.
var otherwise = map[string]string{
	"collect listen":     "where people reach it (default 127.0.0.1:8787) [AEP_LISTEN]",
	"collect token":      "the bearer token that allows everything; a --token-file keeps it out of process lists [AEP_TOKEN]",
	"runtime listen":     "where it listens (default " + runtimeAddr + ")",
	"runtime token":      "the bearer token that allows everything, without --tokens; a --token-file keeps it out of process lists [AEP_TOKEN]",
	"attach token":       "the runtime's bearer token; a --token-file keeps it out of process lists [AEP_TOKEN]",
	"attach token-file":  "file that holds the runtime's bearer token [AEP_TOKEN_FILE]",
	"collect token-file": "file that holds it [AEP_TOKEN_FILE]",
	"runtime token-file": "file that holds it [AEP_TOKEN_FILE]",
}

// settingsOf are the flags that matter to a command and are not its own.
func settingsOf(cmd *cobra.Command) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	all := cmd.Root().PersistentFlags()
	path := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
	add := func(name string) {
		if f := all.Lookup(name); f != nil && cmd.Flag(name) == f { // it may have one of that name
			if usage := otherwise[path+" "+name]; usage != "" {
				other := *f
				other.Usage = usage
				f = &other
			}
			fs.AddFlag(f)
		}
	}
	for word := range strings.FieldsSeq(matters[path]) {
		names := []string{word}
		for _, p := range settingParts {
			if p.name == word {
				names = p.settings
			}
		}
		for _, name := range names {
			add(name)
		}
	}
	if fs.HasFlags() {
		add("config")
	}
	return fs
}

// ownFlags are the flags of a command alone.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if cmd.Root().PersistentFlags().Lookup(f.Name) != f {
			fs.AddFlag(f)
		}
	})
	return fs
}

// helpFlags is the topic "aep-wrap help flags".
func (a *app) helpFlags() *cobra.Command {
	cmd := &cobra.Command{Use: "flags", Short: "The flags that every command takes"}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		var b strings.Builder
		b.WriteString("Every command takes these flags, and --help of each shows those that matter to it.\n" +
			"What a flag says may also stand in the environment, as [NAME] says, or in a file.\n")
		all := cmd.Root().PersistentFlags()
		for _, p := range append(settingParts[:len(settingParts):len(settingParts)], settingPart{"", "The file:", []string{"config"}}) {
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.SortFlags = false
			for _, name := range p.settings {
				fs.AddFlag(all.Lookup(name))
			}
			b.WriteString("\n" + p.title + "\n" + a.usages(fs))
		}
		cmd.Print(b.String())
	})
	return cmd
}

// usages lists flags, as wide as the terminal is.
func (a *app) usages(fs *pflag.FlagSet) string { return fs.FlagUsagesWrapped(terminalWidth(a.Stdout)) }

// setHelp has --help say what matters. It is no template: with templates in it a
// program keeps every method of everything, for they may name any.
func (a *app) setHelp(root *cobra.Command) {
	root.SetUsageFunc(a.usage)
	root.AddCommand(a.helpFlags())
}

func (a *app) usage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			b.WriteString(title + "\n" + text + "\n\n")
		}
	}
	list := func(of func(*cobra.Command) bool) (text string) {
		for _, c := range cmd.Commands() {
			if (c.IsAvailableCommand() || c.Name() == "help") && of(c) {
				text += "  " + pad(c.Name(), c.NamePadding()) + " " + c.Short + "\n"
			}
		}
		return text
	}
	uses := ""
	if cmd.Runnable() {
		uses = "  " + cmd.UseLine() + "\n"
	}
	if cmd.HasAvailableSubCommands() {
		uses += "  " + cmd.CommandPath() + " [command]\n"
	}
	section("Usage:", uses)
	section("Examples:", cmd.Example)
	for _, g := range cmd.Groups() {
		section(g.Title, list(func(c *cobra.Command) bool { return c.GroupID == g.ID }))
	}
	if len(cmd.Groups()) == 0 {
		section("Commands:", list(func(*cobra.Command) bool { return true }))
	}
	section("Flags:", a.usages(ownFlags(cmd)))
	section("Settings:", a.usages(settingsOf(cmd)))
	b.WriteString("Flags that every command takes: " + cmd.Root().Name() + " help flags\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("More about a command: " + cmd.CommandPath() + " [command] --help\n")
	}
	_, err := cmd.OutOrStdout().Write([]byte(b.String()))
	return err
}
