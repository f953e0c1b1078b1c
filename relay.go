package conch

import "time"

// What RelayInfo.Mode may be.
const (
	RelayOff      = "off"      // no daemon runs
	RelayEmbedded = "embedded" // the home's own, in its daemon
	RelayJoined   = "joined"   // another home's, by an invitation
	RelayCluster  = "cluster"  // NATS servers, by address and credentials
)

// RelayStatus is what `relay status --json` prints.
type RelayStatus struct {
	RelayInfo
	// Running says that the home's own relay is started. It starts when it is
	// needed.
	Running bool `json:"running"`
	// Listen is where it takes connections of other machines, and Fingerprint
	// what they know it by; null: nowhere.
	Listen      *string `json:"listen"`
	Fingerprint *string `json:"fingerprint"`
	// Error is why it is not connected, or cannot listen.
	Error     *string      `json:"error"`
	Replicas  int          `json:"replicas"`  // copies of a mailbox
	Mailboxes int          `json:"mailboxes"` // at the home's own relay
	Messages  uint64       `json:"messages"`  // in them
	Bytes     uint64       `json:"bytes"`     // on its disk
	Homes     []RelayHome  `json:"homes"`     // that were let in
	Agents    []RelayAgent `json:"agents"`    // of this home, that are connected or try to be
}

// A RelayHome is another home that an invitation let in.
type RelayHome struct {
	ID       string    `json:"id"`
	JoinedAt time.Time `json:"joined_at"`
	Agents   []string  `json:"agents"` // addresses
}

// A RelayAgent is an agent of this home at the relay.
type RelayAgent struct {
	Address   string  `json:"address"`
	Connected bool    `json:"connected"`
	Error     *string `json:"error"`
}

// RelayListenRequest opens the home's relay to other machines.
type RelayListenRequest struct {
	Address string `json:"address"` // host:port; empty: nobody any more
}

// RelayInviteRequest asks for an invitation.
type RelayInviteRequest struct {
	ExpiresS  int      `json:"expires_s,omitempty"` // 0: an hour
	Addresses []string `json:"addresses,omitempty"` // to dial; none: where it listens
}

// RelayInvite lets one home in, once. The text is a secret.
type RelayInvite struct {
	Invite    string    `json:"invite"`
	Addresses []string  `json:"addresses"`
	ExpiresAt time.Time `json:"expires_at"`
}

// RelayJoinRequest has the home use another relay.
type RelayJoinRequest struct {
	Invite string `json:"invite"`          // or the addresses of NATS servers, with commas
	Creds  string `json:"creds,omitempty"` // what is in the credentials file of a cluster
}

// RelayRemoveRequest takes a home's entry back.
type RelayRemoveRequest struct {
	ID string `json:"id"`
}
