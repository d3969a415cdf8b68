//! A session's inbox: pages of the feed, inquiries, and settlements of claims.

use tokio::sync::mpsc;

use crate::publish::Settlement;
use crate::timeline::inquiry::{INQUIRIES_MAX, Inquiry};
use crate::timeline::source::{PAGES_MAX, Page};

/// Settlements that are taken in together.
pub(super) const SETTLEMENTS_MAX: usize = 256;

/// What has arrived for a session. What a wait receives stays here until a turn takes it.
pub(in crate::timeline) struct Inbox {
    pages: mpsc::Receiver<Page>,
    /// A page that a wait received.
    page: Option<Page>,
    inquiries: mpsc::Receiver<Inquiry>,
    /// An inquiry that a wait received, or that a turn put back.
    inquiry: Option<Inquiry>,
    settled: mpsc::Receiver<Settlement>,
    /// The sender that each claim clones. It keeps `settled` open.
    settle: mpsc::Sender<Settlement>,
    /// Settlements that a wait received.
    settlements: Vec<Settlement>,
}

impl Inbox {
    /// An empty inbox, and the senders of its pages and inquiries. There is room for the settlements of all that may be
    /// claimed, so the publisher never waits to settle.
    pub(in crate::timeline) fn open(claimed_max: usize) -> (Self, mpsc::Sender<Page>, mpsc::Sender<Inquiry>) {
        let (send_page, pages) = mpsc::channel(PAGES_MAX);
        let (inquire, inquiries) = mpsc::channel(INQUIRIES_MAX);
        let (settle, settled) = mpsc::channel(claimed_max);
        let inbox = Self { pages, page: None, inquiries, inquiry: None, settled, settle, settlements: Vec::new() };
        (inbox, send_page, inquire)
    }

    /// Where claims settle.
    pub(super) fn settle(&self) -> &mpsc::Sender<Settlement> {
        &self.settle
    }

    /// Whether the feed is still being read.
    pub(super) fn is_fed(&self) -> bool {
        !self.pages.is_closed()
    }

    pub(super) fn has_page(&self) -> bool {
        self.page.is_some() || !self.pages.is_empty()
    }

    pub(super) fn has_inquiry(&self) -> bool {
        self.inquiry.is_some() || !self.inquiries.is_empty()
    }

    pub(super) fn has_settlements(&self) -> bool {
        !self.settlements.is_empty() || !self.settled.is_empty()
    }

    /// The next page, if it is here.
    pub(super) fn take_page(&mut self) -> Option<Page> {
        self.page.take().or_else(|| self.pages.try_recv().ok())
    }

    /// The next inquiry, if it is here.
    pub(super) fn take_inquiry(&mut self) -> Option<Inquiry> {
        self.inquiry.take().or_else(|| self.inquiries.try_recv().ok())
    }

    /// Puts an inquiry back, which is then the next one.
    pub(super) fn put_back(&mut self, inquiry: Inquiry) {
        self.inquiry = Some(inquiry);
    }

    /// The settlements that are here, up to the bound of a turn.
    pub(super) fn take_settlements(&mut self) -> Vec<Settlement> {
        while self.settlements.len() < SETTLEMENTS_MAX {
            let Ok(settlement) = self.settled.try_recv() else { break };
            self.settlements.push(settlement);
        }
        std::mem::take(&mut self.settlements)
    }

    /// Returns once something has arrived. A page or an inquiry waits outside while another one is here.
    pub(super) async fn arrival(&mut self) {
        tokio::select! {
            biased;
            _ = self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX) => {}
            Some(page) = self.pages.recv(), if self.page.is_none() => self.page = Some(page),
            Some(inquiry) = self.inquiries.recv(), if self.inquiry.is_none() => self.inquiry = Some(inquiry),
        }
    }

    /// Waits for settlements alone. Returns how many arrived.
    pub(super) async fn settlements_arrive(&mut self) -> usize {
        self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX).await
    }

    /// Drops the settlements that a wait received: there is no index to take them in.
    pub(super) fn drop_settlements(&mut self) {
        self.settlements.clear();
    }
}
