package images

// SourceOf returns the Secret that a credential came from, as namespace/name UID.
func SourceOf(c Credential) string {
	return c.source.Namespace + "/" + c.source.Name + " " + string(c.source.UID)
}
