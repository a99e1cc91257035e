// Package images makes the images of a pod present in a CRI runtime, with the
// credentials that the pod may use. The kubelet's counterparts are its image
// manager, its keyring of registry credentials and its pull manager.
//
// # What it does
//
// [Manager.Ensure] decides by pull policy whether to pull, finds the credentials
// for the image in the pod's pull secrets and from each [CredentialProvider], waits
// its turn, pulls, and returns the image with a lease that keeps it from garbage
// collection. [Keyring] is a pure part and useful on its own.
//
// # What you supply
//
// The runtime's two calls, which cri.ImageManagerService has. Whatever else is in
// [Config] may be left out: where Secrets come from (podsource.Store), credential
// providers, limits, leases, where records are kept (agent/state). A provider that
// reads the configuration of a container tool can use a [Keyring].
//
// # What it guarantees
//
//  1. Reasons and messages are the kubelet's. A refusal is an [*Error]; the end of
//     the context is none, and starts no back-off.
//  2. One image is pulled once for all who want it at the same time with the same
//     credentials. One who stops waiting stops nobody else; the last one stops the
//     pull and waits until it has ended.
//  3. Credentials are in no log, event, error or record. A [Credential] prints as a
//     placeholder, within other values too; where a runtime repeats one in its
//     answer, or a provider in its error, it is taken out; errors about Secrets
//     quote nothing of them.
//  4. Credentials are tried in a fixed order: longest location first, then as the
//     pod names its Secrets, then those of providers. An image that credentials fit is not pulled without.
//  5. An image that only another pod's credentials brought is pulled again, unless
//     [Policy.Verify] says otherwise (KEP-2535). A pull that a crash cut short or
//     whose end is not known counts as ours, until credentials bring the image.
//  6. After a failed pull the next one waits for its back-off. One pull that many
//     containers of a pod waited for counts once.
//  7. A pull that makes no progress ends.
//
// # Goroutines and locking
//
// A pull has two goroutines, one of which watches its progress. Both end before
// the last Ensure that waits for it returns. No lock is held while the runtime,
// the event recorder or the observer is called.
//
// # Differences from the kubelet
//
//   - A pull above the rate limit waits; the kubelet fails it, and the pod backs
//     off for it.
//   - A pod's changed Secrets are tried at once, not after the back-off of those that
//     failed. Credentials of providers wait for it.
//   - The kubelet logs the error of a credential provider; here it is in the message of
//     the pull if that fails. Providers are asked only if the pod's Secrets and the
//     record of the image's pull give no access.
//   - Pulls of the same image with the same credentials are one pull.
//   - A pull without progress ends. CRI does not show progress, see
//     [Config.Progress].
//   - A malformed pull secret is named, without anything of its contents, when it
//     is needed; an image that is present and needs no credentials starts without.
//   - The kubelet looks up a pod's pull secrets in every turn, and records an event
//     about missing ones each time; ours looks for them when an image needs a pull or
//     a check.
//   - Identity and registry tokens of a configuration are used.
//   - The size of a pulled image comes with the look at it that the result needs; if
//     that fails the reason is ImageInspectError.
//   - A [CredentialProvider] is code, not a program. What it finds is recorded as the
//     kubelet does for its plugins: for all pods of the node, or for the pod's service
//     account if the provider requested a token of it.
//
// # Testing your code with it
//
// fakecri.Node has both calls: images with delays, errors and passwords are in its
// Config.
package images
