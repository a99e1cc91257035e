package certificates_test

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pauses returns the times between the attempts to create a request.
func pauses(attempts []attempt) (all []time.Duration) {
	for i := 1; i < len(attempts); i++ {
		all = append(all, attempts[i].at.Sub(attempts[i-1].at))
	}
	return all
}

func TestServer_ReplacesTheCertificateWhen70To90PercentOfItsLifeAreOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.start()
		var shares []float64
		for len(shares) < 20 {
			leaf := b.served()
			require.NotNil(t, leaf)
			n := len(b.tried())
			for len(b.tried()) == n {
				require.Equal(t, leaf.SerialNumber, b.served().SerialNumber)
				after(5 * time.Second)
			}
			shares = append(shares, float64(b.tried()[n].at.Sub(leaf.NotBefore))/float64(leaf.NotAfter.Sub(leaf.NotBefore)))
			require.NotEqual(t, leaf.SerialNumber, b.served().SerialNumber)
		}
		lowest, highest := shares[0], shares[0]
		for _, share := range shares {
			lowest, highest = min(lowest, share), max(highest, share)
		}
		require.GreaterOrEqual(t, lowest, 0.7)
		require.LessOrEqual(t, highest, 0.9+0.002, "the certificate is checked every 5 seconds")
		require.Greater(t, highest-lowest, 0.03, "nodes that started together do not request at the same time")
	})
}

func TestServer_RetriesARefusedRequestWithBackOff(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.refuse = func(n int) *apierrors.StatusError {
			if n < 7 {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "certificatesigningrequests"}, "", nil)
			}
			return nil
		}
		b.start()
		require.Nil(t, b.served())
		after(3 * time.Minute)
		require.NotNil(t, b.served())
		require.Len(t, b.tried(), 8)
		exact := 0
		for i, pause := range pauses(b.tried()) {
			shortest := min(2*time.Second<<i, 32*time.Second)
			require.GreaterOrEqual(t, pause, shortest)
			require.LessOrEqual(t, pause, shortest+shortest/10)
			if pause == shortest {
				exact++
			}
		}
		require.Less(t, exact, 7, "no jitter")
		require.Equal(t, 7, strings.Count(b.log.String(), "will retry"))
		require.Contains(t, b.log.String(), "is forbidden")

		// The next replacement starts with the shortest pause again.
		b.set(func() {
			b.refuse = func(n int) *apierrors.StatusError {
				if n == 8 {
					return apierrors.NewInternalError(os.ErrDeadlineExceeded)
				}
				return nil
			}
		})
		after(55 * time.Minute)
		require.Len(t, b.tried(), 10)
		require.Less(t, pauses(b.tried())[8], 3*time.Second)
	})
}

func TestServer_RequestsAgain(t *testing.T) {
	t.Parallel()
	failed := func(kind certificatesv1.RequestConditionType) func(*testing.T, *bed, *certificatesv1.CertificateSigningRequest) {
		return func(_ *testing.T, _ *bed, csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Reason: "Because", Message: "of a rule"}}
		}
	}
	for _, c := range []struct {
		name   string
		decide func(*testing.T, *bed, *certificatesv1.CertificateSigningRequest)
		logs   string
		kept   bool // the previous certificate is served
	}{
		{"after_a_denied_request", failed(certificatesv1.CertificateDenied), "is denied, reason: Because, message: of a rule", true},
		{"after_a_failed_request", failed(certificatesv1.CertificateFailed), "failed, reason: Because, message: of a rule", true},
		{"after_a_certificate_that_is_not_PEM", func(_ *testing.T, _ *bed, csr *certificatesv1.CertificateSigningRequest) {
			approve(csr, []byte("garbage"))
		}, "store the certificate: invalid certificate data", true},
		{"after_a_certificate_for_another_key", func(t *testing.T, b *bed, csr *certificatesv1.CertificateSigningRequest) {
			t.Helper()
			cert, _ := b.pair(time.Now().Add(time.Hour))
			approve(csr, cert)
		}, "private key does not match public key", true},
		{"after_a_certificate_without_the_names", func(_ *testing.T, b *bed, csr *certificatesv1.CertificateSigningRequest) {
			approve(csr, b.issue(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)}, parse(csr.Spec.Request).PublicKey))
		}, "does not have all requested names", false},
		{"after_a_certificate_that_has_expired", func(_ *testing.T, b *bed, csr *certificatesv1.CertificateSigningRequest) {
			request := parse(csr.Spec.Request)
			approve(csr, b.issue(&x509.Certificate{Subject: request.Subject, IPAddresses: request.IPAddresses, NotAfter: time.Now().Add(-time.Minute)}, request.PublicKey))
		}, "expires too early, at ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				t := b.t
				b.decide = func(n int, csr *certificatesv1.CertificateSigningRequest) {
					if n == 1 || n == 2 {
						c.decide(t, b, csr)
						return
					}
					approve(csr, b.sign(csr.Spec.Request))
				}
				b.start()
				first := b.served()
				for len(b.tried()) < 2 {
					after(time.Second)
				}
				if c.kept {
					require.Equal(t, first.SerialNumber, b.served().SerialNumber)
				}
				after(10 * time.Second)
				require.Len(t, b.tried(), 4)
				require.Contains(t, b.log.String(), c.logs)
				require.GreaterOrEqual(t, pauses(b.tried())[1], 2*time.Second)
				require.GreaterOrEqual(t, pauses(b.tried())[2], 4*time.Second)
				require.NotEqual(t, first.SerialNumber, b.served().SerialNumber)
				require.Equal(t, []string{"10.0.0.1"}, texts(b.served().IPAddresses))
				after(time.Minute)
				require.Len(t, b.tried(), 4)
			})
		})
	}
}

// texts returns addresses as texts.
func texts(ips []net.IP) (all []string) {
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	return all
}

// pending leaves each request without a decision.
func pending(int, *certificatesv1.CertificateSigningRequest) {}

func TestServer_WaitsForTheApproval(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.decide = pending
		b.start()
		after(10 * time.Minute)
		require.Nil(t, b.served())
		require.Less(t, b.reads, 10, "a pending request is watched, not listed again and again")
		approved := func(cert []byte) func() {
			return func() { approve(&b.requests[0], cert) }
		}
		b.set(approved(nil))
		after(time.Minute)
		require.Nil(t, b.served(), "an approved request has no certificate yet")
		b.set(approved(b.sign(b.asked()[0].Spec.Request)))
		after(time.Second)
		require.NotNil(t, b.served())
		require.Len(t, b.tried(), 1)
	})
}

func TestServer_RequestsAgainAfter15MinutesWithoutApproval(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.decide = pending
		b.start()
		after(15*time.Minute - time.Second)
		require.Len(t, b.tried(), 1)
		after(10 * time.Second)
		require.Len(t, b.tried(), 2)
		require.Contains(t, b.log.String(), "CertificateSigningRequest csr-0: the certificate was not issued within 15 minutes")
	})
}

func TestServer_KeepsTheCertificateWhileTheAPIServerIsAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.start()
		first := b.served()
		after(30 * time.Minute)
		b.set(func() { b.away = true })
		after(25 * time.Minute)
		require.Equal(t, first.SerialNumber, b.served().SerialNumber)
		n := len(b.tried())
		require.Greater(t, n, 5)
		for _, pause := range pauses(b.tried())[6:] {
			require.LessOrEqual(t, pause, 36*time.Second)
			require.GreaterOrEqual(t, pause, 32*time.Second)
		}
		after(6 * time.Minute)
		require.Nil(t, b.served(), "an expired certificate is not served")
		b.set(func() { b.away = false })
		after(40 * time.Second)
		require.NotNil(t, b.served())
		require.NotEqual(t, first.SerialNumber, b.served().SerialNumber)
	})
}

func TestServer_GetsTheCertificateIfTheAPIServerWasAwayMeanwhile(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.decide = pending
		b.start()
		after(time.Minute)
		b.set(func() { b.away = true })
		after(time.Minute)
		b.set(func() { approve(&b.requests[0], b.sign(b.requests[0].Spec.Request)) })
		after(time.Minute)
		require.Nil(t, b.served())
		b.set(func() { b.away = false })
		after(2 * time.Minute) // client-go pauses up to a minute between two lists
		require.NotNil(t, b.served())
		require.Len(t, b.tried(), 1)
	})
}

func TestServer_RequestsACertificateForChangedAddresses(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.start()
		require.Len(t, b.tried(), 1)
		b.move("10.0.0.1", "10.0.0.2")
		after(6 * time.Second)
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, texts(b.served().IPAddresses))
		b.move("10.0.0.2")
		after(time.Minute)
		require.Len(t, b.tried(), 2, "the certificate has all addresses of the node")
		b.move()
		after(time.Minute)
		require.NotNil(t, b.served(), "the certificate is used while the addresses are unknown")
		require.Len(t, b.tried(), 2)

		// A pending request for former addresses is given up.
		b.set(func() { b.decide = pending })
		b.move("10.0.0.3")
		after(6 * time.Second)
		require.Len(t, b.tried(), 3)
		b.set(func() { b.decide = nil })
		b.move("10.0.0.4")
		after(10 * time.Second)
		require.Len(t, b.tried(), 4)
		require.Contains(t, b.log.String(), "CertificateSigningRequest csr-2: the addresses of the node have changed while the request was pending")
		require.Equal(t, []string{"10.0.0.4"}, texts(b.served().IPAddresses))
	})
}

func TestServer_RequestsACertificateForAddedNames(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.start()
		b.mu.Lock()
		b.addresses = append(b.addresses, corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "node1.test"})
		b.mu.Unlock()
		after(6 * time.Second)
		require.Len(t, b.tried(), 2)
		require.Equal(t, []string{"node1.test"}, b.served().DNSNames)
	})
}

func TestServer_RequestsNothingWithoutAnAddress(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "node1"}, {Type: corev1.NodeInternalIP, Address: "unknown"}}
		b.start()
		after(time.Hour)
		require.Empty(t, b.tried())
		b.move("10.0.0.1")
		after(2 * time.Second)
		require.NotNil(t, b.served())
	})
}

func TestServer_RequestsNothingWhileTheAddressesAreUnknownAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.decide = pending
		b.start()
		b.move()
		after(time.Hour)
		require.Len(t, b.tried(), 1)
		require.Contains(t, b.log.String(), "the addresses of the node are not known yet")
		b.set(func() { b.decide = nil })
		b.move("10.0.0.1")
		after(40 * time.Second)
		require.NotNil(t, b.served())
	})
}

func TestServer_WritesTheFilesOfTheKubelet(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.start()
		target, err := os.Readlink(b.current())
		require.NoError(t, err)
		require.Equal(t, filepath.Join(b.dir, "kubelet-server-"+time.Now().Format("2006-01-02-15-04-05")+".pem"), target)
		requireMode(t, target, 0o600)
		require.Regexp(t, `(?s)^-----BEGIN CERTIFICATE-----.*-----BEGIN EC PRIVATE KEY-----`, read(t, target))

		after(time.Hour)
		next, err := os.Readlink(b.current())
		require.NoError(t, err)
		require.NotEqual(t, target, next)
		requireMode(t, next, 0o600)
		entries, err := os.ReadDir(b.dir)
		require.NoError(t, err)
		require.Len(t, entries, 3, "the link and two certificates")
	})
}

// requireMode requires that a file has a mode.
func requireMode(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm())
}

func TestServer_RetriesIfItCanNotStoreTheCertificate(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		require.NoError(t, os.Mkdir(b.dir, 0o700))
		require.NoError(t, os.WriteFile(b.current(), nil, 0o600))
		b.start()
		require.Nil(t, b.served())
		require.Contains(t, b.log.String(), "to be a symlink but it is a file")
		require.NoError(t, os.Remove(b.current()))
		after(3 * time.Second)
		require.NotNil(t, b.served())
	})
}

func TestServer_Starts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		prepare  func(t *testing.T, b *bed, cert, key []byte)
		requests int
		logs     string
	}{
		{"with_the_stored_certificate", nil, 0, ""},
		{"with_the_certificate_of_an_interrupted_replacement", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			require.NoError(t, os.Rename(b.current(), filepath.Join(b.dir, "kubelet-server-updated.pem")))
		}, 0, ""},
		{"without_a_certificate", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			require.NoError(t, os.RemoveAll(b.dir))
		}, 1, ""},
		{"with_a_link_to_a_missing_file", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			target, err := os.Readlink(b.current())
			require.NoError(t, err)
			require.NoError(t, os.Remove(target))
		}, 1, ""},
		{"with_an_expired_certificate", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			cert, key := b.pair(time.Now().Add(-time.Minute))
			b.fill(t, append(cert, key...))
		}, 1, ""},
		{"with_a_certificate_that_is_due", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			cert, key := b.pair(time.Now().Add(time.Minute))
			b.fill(t, append(cert, key...))
		}, 1, ""},
		{"with_a_truncated_certificate", func(t *testing.T, b *bed, cert, _ []byte) {
			t.Helper()
			b.fill(t, cert[:len(cert)/2])
		}, 1, "could not read the current certificate, ignoring it"},
		{"with_a_certificate_without_its_key", func(t *testing.T, b *bed, cert, _ []byte) {
			t.Helper()
			b.fill(t, cert)
		}, 1, "could not read the current certificate, ignoring it"},
		{"with_the_key_of_another_certificate", func(t *testing.T, b *bed, cert, _ []byte) {
			t.Helper()
			_, key := b.pair(time.Now().Add(time.Hour))
			b.fill(t, append(cert, key...))
		}, 1, "private key does not match public key"},
		{"with_an_empty_file", func(t *testing.T, b *bed, _, _ []byte) {
			t.Helper()
			b.fill(t, nil)
		}, 1, "could not read the current certificate, ignoring it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				t := b.t
				require.NoError(t, os.Mkdir(b.dir, 0o700))
				target := filepath.Join(b.dir, "kubelet-server-before.pem")
				require.NoError(t, os.Symlink(target, b.current()))
				cert, key := b.pair(time.Now().Add(time.Hour))
				b.fill(t, append(append([]byte(nil), cert...), key...))
				if c.prepare != nil {
					c.prepare(t, b, cert, key)
				}
				b.start()
				require.Len(t, b.tried(), c.requests)
				require.NotNil(t, b.served())
				require.NoError(t, b.served().VerifyHostname("10.0.0.1"))
				require.FileExists(t, b.current())
				require.Contains(t, b.log.String(), c.logs)
				if c.logs == "" {
					require.NotContains(t, b.log.String(), "level=WARN")
				}
			})
		})
	}
}

// fill replaces the content of the current certificate's file.
func (b *bed) fill(t *testing.T, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(b.current(), content, 0o600))
}

func TestServer_RunStops(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(int, *certificatesv1.CertificateSigningRequest){
		"while_the_certificate_is_valid": nil,
		"while_a_request_is_pending":     pending,
		"before_a_retry": func(_ int, csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				t := b.t
				b.decide = decide
				stop := b.start()
				after(time.Minute)
				began := time.Now()
				stop() // The bubble fails if a goroutine is left.
				require.LessOrEqual(t, time.Since(began), time.Second)
				n := len(b.tried())
				after(time.Hour)
				require.Len(t, b.tried(), n)
			})
		})
	}
}
