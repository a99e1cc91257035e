package certificates

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/clock"
)

const (
	clientPair = "kubelet-client" // prefix of the files of client certificates
	serverPair = "kubelet-server" // prefix of the files of serving certificates
)

// ClientConfig configures [Connect].
type ClientConfig struct {
	// Kubeconfig is the path of the kubeconfig of the node. Required.
	Kubeconfig string
	// Bootstrap is the path of a kubeconfig with which the node requests its first client
	// certificate if Kubeconfig can't be used. Optional.
	Bootstrap string
	// Dir is the folder of the certificates. Required with Bootstrap or Rotate.
	Dir string
	// NodeName is the name of the node. Required.
	NodeName string
	// Rotate makes [Client.Run] replace the client certificate before it expires.
	Rotate bool
	// Clock is the time source. Default: the system clock.
	Clock clock.WithTicker
	// Logger receives structured logs, also those of client-go. Default: discard.
	Logger *slog.Logger
}

// Validate returns all problems with c as one error. It opens no file.
func (c ClientConfig) Validate() error {
	var errs []error
	if c.Kubeconfig == "" {
		errs = append(errs, errors.New("certificates: Kubeconfig is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("certificates: NodeName is required"))
	}
	if c.Dir == "" && (c.Bootstrap != "" || c.Rotate) {
		errs = append(errs, errors.New("certificates: Dir is required with Bootstrap or Rotate"))
	}
	return errors.Join(errs...)
}

// Client is the access of a node to the API server. Create it with [Connect].
type Client struct {
	cfg    ClientConfig
	config *rest.Config
	store  certificate.FileStore // nil: neither rotation nor bootstrap
}

// Connect returns a Client. If the kubeconfig can't be used and a bootstrap kubeconfig is given,
// Connect requests a client certificate. When the certificate is issued, Connect writes the
// kubeconfig. It returns an error if ctx is done first.
func Connect(ctx context.Context, cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = orDiscard(cfg.Logger)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	c := &Client{cfg: cfg}
	if cfg.Rotate || cfg.Bootstrap != "" {
		store, err := certificate.NewFileStoreWithLogger(loggerOf(withLogger(ctx, cfg.Logger)), clientPair, cfg.Dir, cfg.Dir, "", "")
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.store = store
	}
	config, err := c.load()
	if err != nil && cfg.Bootstrap != "" {
		cfg.Logger.InfoContext(ctx, "the kubeconfig can't be used, requesting a client certificate with the bootstrap kubeconfig",
			"kubeconfig", cfg.Kubeconfig, "bootstrapKubeconfig", cfg.Bootstrap, "err", err)
		if err := c.bootstrap(ctx); err != nil {
			return nil, fmt.Errorf("request a client certificate with the bootstrap kubeconfig %s: %w", cfg.Bootstrap, err)
		}
		config, err = c.load()
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	c.config = config
	if cfg.Rotate {
		if err := c.prepareRotation(); err != nil {
			return nil, fmt.Errorf("rotate the client certificate of %s: %w", cfg.Kubeconfig, err)
		}
	}
	return c, nil
}

// Config returns a copy of the configuration of clients. Clients read the certificate again when
// the file of the certificate changes.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// load returns the configuration in the kubeconfig. With rotation, it uses the stored certificate
// if that is valid, because the certificate in the kubeconfig may be older. It returns an error if
// the client certificate can't be read or has expired.
func (c *Client) load() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if c.cfg.Rotate {
		r := c.rotator(config)
		r.load()
		if r.valid() != nil {
			useFiles(config, c.store.CurrentPath())
			return config, nil
		}
	}
	pair, err := pairOf(config)
	if err == nil && pair != nil && c.cfg.Clock.Now().After(pair.Leaf.NotAfter) {
		err = fmt.Errorf("the client certificate expired at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return config, err
}

// pairOf returns the client certificate of a configuration, or nil if it has none.
func pairOf(config *rest.Config) (*tls.Certificate, error) {
	loaded := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return nil, err
	}
	if len(loaded.CertData) == 0 {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(loaded.CertData, loaded.KeyData)
	return &pair, err
}

// bootstrap requests a client certificate, and writes a kubeconfig that refers to it. As in the
// kubelet, it doesn't use a stored certificate, which may be that of another cluster.
func (c *Client) bootstrap(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.cfg.Bootstrap)
	if err != nil {
		return err
	}
	if err := c.rotator(config).issue(withLogger(ctx, c.cfg.Logger)); err != nil {
		return err
	}
	return c.writeKubeconfig()
}

// prepareRotation lets the configuration use the files of the store, so that clients notice a
// replaced certificate.
func (c *Client) prepareRotation() error {
	if c.config.CertFile == c.store.CurrentPath() {
		return nil
	}
	loaded := c.Config()
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return err
	}
	if len(loaded.CertData) == 0 {
		return errors.New("the kubeconfig has no client certificate")
	}
	if _, err := c.store.Update(loaded.CertData, loaded.KeyData); err != nil {
		return err
	}
	useFiles(c.config, c.store.CurrentPath())
	return nil
}

// useFiles makes a configuration read the client certificate and its key from a file.
func useFiles(config *rest.Config, path string) {
	config.CertFile, config.KeyFile, config.CertData, config.KeyData = path, path, nil, nil
}

// Run replaces the client certificate before it expires, until ctx is done. It returns nil at once
// if rotation is off.
func (c *Client) Run(ctx context.Context) error {
	if !c.cfg.Rotate {
		return nil
	}
	r := c.rotator(c.config)
	r.load()
	r.run(withLogger(ctx, c.cfg.Logger))
	return nil
}

// rotator returns the rotator of the client certificate. The rotator sends requests with the
// current certificate to the API server of config. Without a valid certificate, the rotator uses
// the bootstrap kubeconfig. Without a bootstrap kubeconfig, it uses config.
func (c *Client) rotator(config *rest.Config) *rotator {
	return &rotator{
		client: func(current *tls.Certificate) (kubernetes.Interface, error) {
			config := config
			switch {
			case current != nil:
				config = rest.AnonymousClientConfig(config)
				useFiles(config, c.store.CurrentPath())
			case c.cfg.Bootstrap != "":
				first, err := clientcmd.BuildConfigFromFlags("", c.cfg.Bootstrap)
				if err != nil {
					return nil, fmt.Errorf("there is no valid client certificate: %w", err)
				}
				config = first
			}
			return kubernetes.NewForConfig(config)
		},
		template: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{Subject: pkix.Name{
				CommonName: "system:node:" + c.cfg.NodeName, Organization: []string{"system:nodes"},
			}}
		},
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
		store: c.store, clock: c.cfg.Clock, log: c.cfg.Logger,
	}
}

// writeKubeconfig writes a kubeconfig for the API server of the bootstrap kubeconfig, with the stored
// client certificate. Its cluster, user and context have the same names as in the kubelet's file.
func (c *Client) writeKubeconfig() error {
	const name = "default"
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: c.cfg.Bootstrap}
	bootstrap, err := rules.Load() // with absolute paths
	if err != nil {
		return err
	}
	current := bootstrap.Contexts[bootstrap.CurrentContext]
	if current == nil {
		return fmt.Errorf("context %q does not exist", bootstrap.CurrentContext)
	}
	pair, err := filepath.Abs(c.store.CurrentPath())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.cfg.Kubeconfig), 0o700); err != nil {
		return err
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name + "-cluster": bootstrap.Clusters[current.Cluster]},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name + "-auth": {ClientCertificate: pair, ClientKey: pair}},
		Contexts:       map[string]*clientcmdapi.Context{name + "-context": {Cluster: name + "-cluster", AuthInfo: name + "-auth", Namespace: name}},
		CurrentContext: name + "-context",
	}, c.cfg.Kubeconfig)
}

// withLogger returns a context with which client-go logs to a logger.
func withLogger(ctx context.Context, log *slog.Logger) context.Context {
	return logr.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
}

func loggerOf(ctx context.Context) logr.Logger { return logr.FromContextOrDiscard(ctx) }

// orDiscard returns log, or a logger that discards everything.
func orDiscard(log *slog.Logger) *slog.Logger {
	return cmp.Or(log, slog.New(slog.DiscardHandler))
}
