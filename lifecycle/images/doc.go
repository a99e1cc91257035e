// Package images pulls the images of pods through a CRI runtime. For each pod,
// it uses the credentials that the pod may use. The kubelet's counterparts are
// its image manager, its keyring of registry credentials and its pull manager.
//
// # What it does
//
// [Manager.Ensure] decides by the pull policy whether to pull an image, and by
// [Policy.Verify] whether the pod may use a present image. Before a pull,
// Ensure reads the pod's pull secrets and calls each [CredentialProvider].
// Ensure then waits until the limits on pulls allow the pull. Ensure returns
// the image with a lease that protects the image from garbage collection. A
// [Keyring] makes no calls and can be used without a Manager.
//
// # What you supply
//
// You supply an [ImageService] with two methods; cri.ImageManagerService
// implements it. Everything else in [Config] is optional: the source of Secrets
// (podsource.Store), credential providers, limits, leases, and a store for the
// records of pulls (agent/state). A provider that reads the configuration of a
// container tool can use a [Keyring].
//
// # What it guarantees
//
//  1. Reasons and messages are the kubelet's. A failure is an [*Error]. If the
//     caller's context is done, Ensure returns an error of another type, and no
//     back-off starts.
//  2. Callers that request an image at the same time with the same credentials
//     share one pull. A caller whose context is done does not affect the other
//     callers. If the contexts of all waiting callers are done, the pull is
//     cancelled, and the last caller waits until the pull has ended.
//  3. Credentials are never in logs, events, errors or records. A [Credential]
//     prints as a placeholder, also within other values. If the error of a
//     runtime or a provider contains a credential, the Manager replaces the
//     credential by the placeholder. Errors about Secrets do not quote the
//     contents of the Secrets.
//  4. Credentials are tried in a fixed order. The credentials of Secrets are
//     first, in reverse alphabetical order of their locations (registry host
//     and path). So a longer path comes before its prefix. Credentials for the
//     same location are in the order of the pod's Secrets. The credentials of
//     providers follow, in the order of the providers. If there are credentials
//     for an image, the Manager never pulls the image anonymously.
//  5. If an image was pulled only with credentials that a pod does not have,
//     Ensure pulls the image again with the pod's own credentials. If the pull
//     policy is Never, Ensure fails instead. [Policy.Verify] can exclude images
//     from this verification (KEP-2535). If a crash interrupted the pull of an
//     image, or if the result of the pull is unknown, the image does not count
//     as preloaded.
//  6. After a failed pull, a back-off delays the next pull. If several
//     containers of a pod waited for the same failed pull, it counts as one
//     failure.
//  7. A pull without progress is cancelled.
//
// # Goroutines and locking
//
// A pull has two goroutines; the second goroutine watches the progress of the
// pull. Both goroutines end before the last waiting call of Ensure returns. The
// Manager holds no lock while it calls the runtime, the event recorder or the
// observer, with one exception: it calls Observer.RecordsChanged while it holds
// the lock of its records.
//
// # Differences from the kubelet
//
//   - Here a pull above the rate limit waits; the kubelet fails it, and the pod
//     backs off.
//   - If a pod's Secrets change after a failed pull, the Manager tries the new
//     Secrets at once; the kubelet tries them after the back-off. Like the
//     kubelet, the Manager tries changed credentials of providers only after
//     the back-off.
//   - The kubelet logs the error of a credential provider; here the message of
//     a failed pull contains this error. For a present image, the Manager calls
//     the providers only if the pod's Secrets and the record of the image's
//     pull give no access.
//   - The Manager combines concurrent pulls of the same image with the same
//     credentials into one pull. The kubelet calls the runtime for each of
//     them.
//   - The Manager cancels a pull without progress. The CRI does not report
//     progress, see [Config.Progress].
//   - If a pull secret of the pod is malformed, Ensure fails for an image that
//     needs a pull or a check. The error names the secret but does not quote
//     its contents. If the image is present and needs no credentials, the
//     container starts without its pull secrets.
//   - The kubelet reads a pod's pull secrets in every sync, and records an
//     event about missing secrets each time; this package reads them when an
//     image needs a pull or a check.
//   - The Manager uses the identity and registry tokens in pull secrets; the
//     kubelet ignores them.
//   - If the call of ImageStatus after a pull fails, Ensure fails with the
//     reason ImageInspectError. The kubelet ignores this failure and reports
//     the size 0.
//   - The kubelet's credential plugins are programs; here a
//     [CredentialProvider] is Go code. Its credentials are recorded in the same
//     way as the credentials of the kubelet's plugins: for all pods of the
//     node, or for the pod's service account if the provider requested a token
//     of this account.
//
// # Testing your code with it
//
// fakecri.Node implements both calls: its Config has images with delays, errors
// and passwords.
package images
