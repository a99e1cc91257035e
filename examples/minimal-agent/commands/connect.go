package commands

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// serverVariable is the environment variable with the default of --server.
const serverVariable = "MINIMAL_AGENT_SERVER"

// connection has the flags of every command that queries an agent.
type connection struct{ cfg api.ClientConfig }

func (c *connection) register(p Program, flags *flag.FlagSet) {
	server := p.getenv(serverVariable)
	if server == "" {
		server = api.DefaultServer
	}
	flags.StringVar(&c.cfg.Server, "server", server, "URL of the agent; its default can be set in the environment variable "+serverVariable)
	flags.StringVar(&c.cfg.TokenFile, "token-file", "", "file with the token that the agent requires")
	flags.StringVar(&c.cfg.CertFile, "cert-file", "", "file with the client certificate that the agent requires, in PEM; needs --key-file and an https URL")
	flags.StringVar(&c.cfg.KeyFile, "key-file", "", "file with the private key of --cert-file, in PEM")
	flags.StringVar(&c.cfg.CAFile, "ca-file", "", "file with the CA certificates that verify the agent's certificate (default: the system's)")
}

func (c *connection) open() (*api.Client, error) {
	client, err := api.NewClient(c.cfg)
	return client, Usage(err)
}

// Output formats.
const (
	formatTable = ""
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// output is the flag -o.
type output string

func (o *output) register(flags *flag.FlagSet, formats ...string) {
	flags.Func("o", "output `format`: "+strings.Join(formats, ", ")+" (default: text)", func(text string) error {
		if !slices.Contains(formats, text) {
			return fmt.Errorf("must be %s", strings.Join(formats, " or "))
		}
		*o = output(text)
		return nil
	})
}

// data reports whether the format prints the agent's response itself, without a
// table.
func (o output) data() bool { return o == formatJSON || o == formatYAML }

// printText prints a text from the agent, with control characters replaced by spaces.
func (p Program) printText(text string) error {
	_, err := fmt.Fprintln(p.Stdout, printable.Lines(strings.TrimSuffix(text, "\n"), ""))
	return err
}

// print prints the agent's response as JSON or YAML.
func (p Program) print(o output, answer any) error {
	var text []byte
	var err error
	if o == formatYAML {
		text, err = yaml.Marshal(answer)
	} else if text, err = json.MarshalIndent(answer, "", "  "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(text)
	return err
}
